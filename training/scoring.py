"""Scores of a network on whole records, and the table that compares runs."""

from __future__ import annotations

import numpy as np
import torch

from promptguard.model.network import (
    USER,
    Window,
    answers_window,
    context_window,
    document_windows,
    message_windows,
)
from training.batches import pad
from training.network import Network
from training.score import macro, matched
from training.weighing import Row

BATCH = 512
MESSAGE, TURN, DOCUMENT, ANSWERS, GLOSSED_MESSAGE, GLOSSED_TURN = range(6)
Job = tuple[int, int, Window]


def jobs_of(rows: list[Row]) -> list[Job]:
    """Return all windows that are to be read: of which row, as what."""
    jobs: list[Job] = []
    for index, row in enumerate(rows):
        if row["task"] == "document":
            (_, task), (_, ids) = row["ids"]
            jobs += [(index, DOCUMENT, w) for w in document_windows(task, ids)]
            continue
        if row["task"] == "answers":
            jobs.append((index, ANSWERS, answers_window(*(ids for _, ids in row["ids"]))))
            continue
        jobs += [(index, *job) for job in told(row["ids"], row["system_ids"], MESSAGE, TURN)]
        if "gloss_ids" in row:
            glossed = told(row["gloss_ids"], row["system_ids"], GLOSSED_MESSAGE, GLOSSED_TURN)
            jobs += [(index, *job) for job in glossed]
    # Windows of like length share a batch, so that little is padded.
    return sorted(jobs, key=lambda job: len(job[2][0]))


@torch.no_grad()
def logits_of(
    network: Network, rows: list[Row], jobs: list[Job], device: str
) -> dict[str, np.ndarray]:
    """Return raw logits: message (highest window of a user turn), context, document, answers.

    Message and context also of the gloss, where there is one; elsewhere they are repeated.
    """
    network.eval()
    names = {MESSAGE: "message", TURN: "context"}
    names |= {GLOSSED_MESSAGE: "gloss_message", GLOSSED_TURN: "gloss_context"}
    found = {
        # Below any logit, so that rows without such a window rank last and take any maximum.
        "message": np.full((len(rows), 4), -20.0, dtype=np.float32),
        "context": np.full((len(rows), 2), -20.0, dtype=np.float32),
        "gloss_message": np.full((len(rows), 4), -20.0, dtype=np.float32),
        "gloss_context": np.full((len(rows), 2), -20.0, dtype=np.float32),
        "document": np.full(len(rows), -20.0, dtype=np.float32),
        "answers": np.full(len(rows), -20.0, dtype=np.float32),
    }
    with torch.autocast(device, torch.bfloat16):
        for begin in range(0, len(jobs), BATCH):
            part = jobs[begin : begin + BATCH]
            inputs = (t.to(device) for t in pad([window for _, _, window in part]))
            outputs = [o.float().cpu().numpy() for o in network(*inputs)]
            message, context, document = outputs[:3]
            logits = {"message": message, "context": context}
            for place, (index, task, _) in enumerate(part):
                if task == DOCUMENT:
                    found["document"][index] = max(found["document"][index], document[place, 0])
                elif task == ANSWERS:
                    if network.shape.compares_answers:
                        found["answers"][index] = outputs[4][place, 0]
                else:
                    name = names[task]
                    told_now = logits[name.removeprefix("gloss_")][place]
                    found[name][index] = np.maximum(found[name][index], told_now)
    for index, row in enumerate(rows):
        if "gloss_ids" not in row:
            for name in ("message", "context"):
                found[f"gloss_{name}"][index] = found[name][index]
    return found


def told(
    said: list[tuple[str, list[int]]], system: list[int], message: int, turn: int
) -> list[tuple[int, Window]]:
    """Return the windows of a talk's user turns one by one, and of the talk."""
    users = [ids for role, ids in said if role == "user"][-24:]
    jobs = [(message, (w, [USER] * len(w))) for ids in users for w in message_windows(ids)]
    talk = [(role, ids) for role, ids in said if role != "tool"]
    return [*jobs, (turn, context_window(talk, system))]


def report(name: str, rows: list[Row], found: dict[str, np.ndarray]) -> None:
    """Print the macro measures of messages, conversations and documents."""
    message, turn = found["message"][:, 0], found["context"][:, 0]
    columns = {
        "message": {"message": message, "turn": turn, "sum": message + turn},
        "context": {"message": message, "turn": turn, "sum": message + turn},
        "document": {"document": found["document"]},
        "answers": {"answers": found["answers"]},
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
