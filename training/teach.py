"""Step 3b: fit the large teacher to the labels and write down what it says; on a GPU.

    python -m training.teach --large .train/large --data .train/data --out .train/told.npz

It is fitted to fewer examples than there are, so that most of what it says is of texts it has not
learned: that is what the thorough reader learns from (`train.py`, `--told-file`). What training
draws most often is read first. Nothing of it ships.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as f
from torch.utils.data import DataLoader, Dataset, IterableDataset

from training.batches import Sampler
from training.course import Course
from training.large import OUTPUTS, WIDTH, Large, Layout, Words, load_large
from training.network import DEVICE
from training.records import read
from training.score import macro, matched
from training.weighing import AUTHORED_BOOST, Row

DRAWN = {"message": 96, "talk": 44, "first": 8, "document": 28, "answers": 24}
CHUNK_TOKENS, READ_TOKENS = 9_000, 40_000
READ_AT_ONCE = 2048
KIND_WEIGHT, SESSION_WEIGHT = 0.3, 0.5


@dataclass
class Chunk:
    """Texts of like length: tokens, lengths, targets and weights, and whose they are."""

    ids: Tensor
    lengths: Tensor
    wanted: Tensor
    weights: Tensor
    rows: list[int]


class Lessons(IterableDataset):  # type: ignore[type-arg]
    """An endless stream of steps, each in chunks of like length."""

    def __init__(self, rows: list[Row], words: Words) -> None:
        by_task = {name: [r for r in rows if group_of(r) == name] for name in DRAWN}
        self.samplers = {
            name: Sampler(part, AUTHORED_BOOST) for name, part in by_task.items() if part
        }
        self.words = words

    def __iter__(self) -> Iterator[list[Chunk]]:
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(11 + (worker.id if worker else 0))
        layout = Layout(self.words)
        while True:
            drawn = [
                row
                for name, sampler in self.samplers.items()
                for row in sampler.draw(DRAWN[name], rng)[: DRAWN[name]]
            ]
            yield chunks_of(drawn, range(len(drawn)), layout, CHUNK_TOKENS)


class Pages(Dataset):  # type: ignore[type-arg]
    """All rows in a given order, some at once, in chunks of like length."""

    def __init__(self, rows: list[Row], order: list[int], words: Words) -> None:
        self.rows, self.order, self.words = rows, order, words

    def __len__(self) -> int:
        return -(-len(self.order) // READ_AT_ONCE)

    def __getitem__(self, page: int) -> list[Chunk]:
        chosen = self.order[page * READ_AT_ONCE : (page + 1) * READ_AT_ONCE]
        picked = [self.rows[index] for index in chosen]
        return chunks_of(picked, chosen, Layout(self.words), READ_TOKENS)


def group_of(row: Row) -> str:
    """Return which share of a step an example belongs to."""
    if row["task"] != "context":
        return str(row["task"])
    is_long = bool(row["system"]) or sum(role == "user" for role, _ in row["said"]) > 1
    return "talk" if is_long else "first"


def targets(row: Row) -> tuple[list[float], list[float]]:
    """Return what is wanted of each output, and how much each counts."""
    wanted, weights = [0.0] * WIDTH, [0.0] * WIDTH
    place = OUTPUTS[row["task"]].start
    wanted[place], weights[place] = float(row["attack"]), 1.0
    if row["task"] == "message":
        for offset, kind in enumerate(row["kinds"], place + 1):
            if kind >= 0:
                wanted[offset], weights[offset] = float(kind), KIND_WEIGHT
    elif row["task"] == "context":
        wanted[place + 1], weights[place + 1] = float(row["session"]), SESSION_WEIGHT
    return wanted, weights


def chunks_of(rows: list[Row], names: range | list[int], layout: Layout, room: int) -> list[Chunk]:
    """Lay rows out and gather those of like length; what does not fit is left out."""
    laid = [(ids, row, name) for ids, row, name in zip(layout.all(rows), rows, names, strict=True)
            if ids is not None]  # fmt: skip
    laid.sort(key=lambda one: len(one[0]))
    chunks: list[Chunk] = []
    gathered: list[tuple[list[int], Row, int]] = []
    for one in laid:
        if gathered and len(one[0]) * (len(gathered) + 1) > room:
            chunks.append(chunk(gathered))
            gathered = []
        gathered.append(one)
    if gathered:
        chunks.append(chunk(gathered))
    return chunks


def chunk(gathered: list[tuple[list[int], Row, int]]) -> Chunk:
    """Return texts as tensors, padded behind."""
    longest = max(len(ids) for ids, _, _ in gathered)
    ids = np.zeros((len(gathered), longest), dtype=np.int64)
    for index, (tokens, _, _) in enumerate(gathered):
        ids[index, : len(tokens)] = tokens
    both = [targets(row) for _, row, _ in gathered]
    return Chunk(
        ids=torch.from_numpy(ids),
        lengths=torch.tensor([len(tokens) for tokens, _, _ in gathered]),
        wanted=torch.tensor([wanted for wanted, _ in both]),
        weights=torch.tensor([weights for _, weights in both]),
        rows=[name for _, _, name in gathered],
    )


def whole(items: list[list[Chunk]]) -> list[Chunk]:
    """Return the one item of a batch."""
    return items[0]


def fit(network: Large, rows: list[Row], words: Words, options: argparse.Namespace) -> None:
    """Fit the decoder to the labels, in half precision with whole copies of the weights."""
    trained = [p for name, p in network.named_parameters() if p.requires_grad]
    copies = [p.detach().float().clone() for p in trained]
    heads = [c for c, p in zip(copies, trained, strict=True) if p.dtype == torch.float32]
    others = [c for c, p in zip(copies, trained, strict=True) if p.dtype != torch.float32]
    optimiser = torch.optim.AdamW(
        [{"params": others, "lr": options.rate}, {"params": heads, "lr": options.rate * 40}],
        betas=(0.9, 0.98), weight_decay=0.0, fused=torch.cuda.is_available(),
    )  # fmt: skip
    loader = iter(DataLoader(Lessons(rows, words), batch_size=None, num_workers=options.workers))
    seen = 0.0
    course = Course(options.steps, options.seconds, optimiser)
    for step in course:
        lesson = next(loader)
        total = sum(float(part.weights.sum()) for part in lesson)
        for part in lesson:
            judged = network(part.ids.to(DEVICE), part.lengths.to(DEVICE))
            loss = f.binary_cross_entropy_with_logits(
                judged, part.wanted.to(DEVICE), part.weights.to(DEVICE), reduction="sum"
            )
            (loss / total).backward()
            # Fetched once in a while: each time waits for all that the device has still to do.
            if step % 20 == 0:
                seen += loss.item() / total
        for copy, parameter in zip(copies, trained, strict=True):
            copy.grad = parameter.grad.float() if parameter.grad is not None else None
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(copies, 1.0)
        optimiser.step()
        with torch.no_grad():
            torch._foreach_copy_(trained, copies)
        if step % 20 == 0:
            print(f"large {step} {seen:.3f} {course.took:.0f}s", flush=True)
            seen = 0.0
    print(f"fitted for {course.step} steps", flush=True)


@torch.no_grad()
def told(
    network: Large, rows: list[Row], order: list[int], words: Words, seconds: float, workers: int
) -> np.ndarray:
    """Return what the teacher says of each row, nan where time ran out or a text did not fit."""
    found = np.full((len(rows), WIDTH), np.nan, dtype=np.float16)
    pages = DataLoader(
        Pages(rows, order, words), batch_size=1, collate_fn=whole, num_workers=workers,
        prefetch_factor=4 if workers else None,
    )  # fmt: skip
    start = time.time()
    for done, page in enumerate(pages):
        for part in page:
            judged = network(part.ids.to(DEVICE), part.lengths.to(DEVICE))
            found[part.rows] = judged.float().clamp(-12, 12).cpu().numpy()
        if time.time() - start > seconds:
            print(f"time ran out after {done + 1} of {len(pages)} pages", flush=True)
            break
    print(f"{int((~np.isnan(found[:, 0])).sum())} read in {time.time() - start:.0f}s", flush=True)
    return found


def report(name: str, rows: list[Row], found: np.ndarray) -> None:
    """Print how well it tells each task's examples apart."""
    for task, place in OUTPUTS.items():
        picked = [
            i for i, row in enumerate(rows) if row["task"] == task and not np.isnan(found[i, 0])
        ]
        labels = [rows[i]["attack"] for i in picked]
        if len(set(labels)) == 2:
            scores = found[picked, place.start].astype(float).tolist()
            sources = [rows[i]["source"] for i in picked]
            line = " ".join(f"{k} {v:.3f}" for k, v in macro(scores, labels, sources).items())
            inner = matched(scores, labels, sources)
            print(f"large {name} {task:8} {len(picked)} {line} within {inner:.3f}", flush=True)


def by_draws(rows: list[Row]) -> list[int]:
    """Return the rows in the order of how often training draws them."""
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(group_of(row), []).append(index)
    rates = np.zeros(len(rows))
    for name, indices in groups.items():
        part = [rows[index] for index in indices]
        sampler = Sampler(part, AUTHORED_BOOST)
        places = {id(row): index for index, row in zip(indices, part, strict=True)}
        share = DRAWN[name] / sum(sampler.weights)
        for units, weight in zip(sampler.units, sampler.weights, strict=True):
            for unit in units:
                for row in unit:
                    rates[places[id(row)]] = share * weight / len(units)
    order: list[int] = np.argsort(-rates, kind="stable").tolist()
    return order


def main() -> None:
    """Fit, report, read, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("large", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=320.0)
    parser.add_argument("--label-seconds", type=float, default=200.0)
    parser.add_argument("--rate", type=float, default=2e-5)
    parser.add_argument("--workers", type=int, default=12)
    options = parser.parse_args()
    # The workers are many; each needs no threads of its own.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    start = time.time()
    network, words = load_large(options.large)
    network = network.to(DEVICE, torch.bfloat16)
    network.judgement.float()
    rows = list(read(options.data / "train.jsonl.gz"))
    print(f"loaded in {time.time() - start:.0f}s", flush=True)
    fit(network, rows, words, options)
    network.eval()
    for name in ("dev", "held"):
        part = list(read(options.data / f"{name}.jsonl.gz"))
        order = list(range(0, len(part), 1 if name == "dev" else 3))
        report(name, part, told(network, part, order, words, 60.0, options.workers))
    found = told(network, rows, by_draws(rows), words, options.label_seconds, options.workers)
    written = options.out.with_suffix(".part.npz")
    np.savez_compressed(written, told=found)
    # Renamed when it is whole: training waits for the file.
    written.rename(options.out)


if __name__ == "__main__":
    main()
