"""Scores of a network on whole records, and the table that compares runs."""

from __future__ import annotations

import numpy as np
import torch

from training.batches import pad
from training.jobs import Job, Logits, nothing_read, take, without_gloss
from training.network import Network
from training.score import macro, matched
from training.weighing import Row

BATCH = 512
HEADS = ("message", "context", "document")


@torch.no_grad()
def logits_of(network: Network, rows: list[Row], jobs: list[Job], device: str) -> Logits:
    """Return raw logits: message (highest window of a user turn), context, document.

    Message and context also of the gloss, where there is one; elsewhere they are repeated.
    """
    network.eval()
    found = nothing_read(len(rows))
    with torch.autocast(device, torch.bfloat16):
        for begin in range(0, len(jobs), BATCH):
            part = jobs[begin : begin + BATCH]
            inputs = (t.to(device) for t in pad([window for _, _, window in part]))
            outputs = [o.float().cpu().numpy() for o in network(*inputs)]
            for place, job in enumerate(part):
                told = {name: outputs[at][place] for at, name in enumerate(HEADS)}
                take(found, job, told)
    return without_gloss(found, rows)


def report(name: str, rows: list[Row], found: dict[str, np.ndarray]) -> None:
    """Print the macro measures of messages, conversations and documents."""
    message, turn = found["message"][:, 0], found["context"][:, 0]
    columns = {
        "message": {"message": message, "turn": turn, "sum": message + turn},
        "context": {"message": message, "turn": turn, "sum": message + turn},
        "document": {"document": found["document"]},
    }
    for task, scores in columns.items():
        picked = [i for i, row in enumerate(rows) if row["task"] == task]
        labels = [rows[i]["attack"] for i in picked]
        sources = [rows[i]["source"] for i in picked]
        if len(set(labels)) < 2:
            continue
        for column, values in scores.items():
            kept = values[picked].tolist()
            line = " ".join(f"{k} {v:.3f}" for k, v in macro(kept, labels, sources).items())
            inner = matched(kept, labels, sources)
            print(f"{name:14} {task:8} {column:9} {line} within {inner:.3f}", flush=True)
