"""Step 5b: score examples with the exported readers, on a CPU; some minutes a thousand talks.

    python -m training.score_exported .train/data src/promptguard/data/model .train/sampled \\
        .train/scores --per-kind 30 --jobs 2

Instead of the stage `score` of training, where that was not run: what is scored is what ships, the
readers as they are quantised. Of each held-out source, label and task at most `--per-kind` examples
are scored, of each development source and label `--per-dev-kind`; those that are scored are written
to a folder of their own, in the order of the scores, for the steps that read both.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from promptguard.model.network import Network
from training.jobs import (
    Job,
    Logits,
    jobs_of,
    labels_of,
    nothing_read,
    take,
    without_gloss,
)
from training.records import at_most, read
from training.tokens import open_tokenizer, tokenise
from training.weighing import Row

EVERY = 2000  # windows between two lines that say how far it has come


def load(data: Path, name: str, per_kind: int) -> list[Row]:
    """Return the examples that are scored."""
    rows = read(data / f"{name}.jsonl.gz")
    return list(at_most(rows, per_kind, lambda r: (r["source"], r["attack"], r["task"])))


def write(path: Path, rows: list[Row]) -> None:
    """Write examples as gzipped JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def scored(name: str, model: Path, rows: list[Row], jobs: list[Job], processes: int) -> Logits:
    """Return the raw logits of one reader."""
    found = nothing_read(len(rows))
    # Windows of like length are neighbours: dealt out, all processes have as much to do.
    parts = [jobs[begin::processes] for begin in range(processes)]
    with ProcessPoolExecutor(processes) as pool:
        for part in pool.map(partial(part_scored, name, model, len(rows)), parts):
            for key, value in part.items():
                found[key] = np.maximum(found[key], value)
    return without_gloss(found, rows)


def part_scored(name: str, model: Path, rows: int, jobs: Sequence[Job]) -> Logits:
    """Return the raw logits of some windows of `rows` examples."""
    network, found = reader(name, model), nothing_read(rows)
    for place, job in enumerate(jobs):
        (told,) = network.run([job[2]])
        outputs = {"message": told.message, "context": told.context, "document": told.document}
        take(found, job, outputs)
        if place % EVERY == 0:
            print(f"{name}: {place} of {len(jobs)} windows", flush=True)
    return found


def reader(name: str, model: Path) -> Network:
    """Return an exported reader."""
    weights = model / f"{name}.npz"
    return Network(
        lambda: model / f"{name}.onnx", weights=(lambda: weights) if weights.is_file() else None
    )


def main() -> None:
    """Score both sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("sampled", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--per-kind", type=int, default=30)
    parser.add_argument("--per-dev-kind", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    tokenizer = open_tokenizer(options.model)
    options.scores.mkdir(parents=True, exist_ok=True)
    for part, most in (("dev", options.per_dev_kind), ("held", options.per_kind)):
        rows = load(options.data, part, most)
        write(options.sampled / f"{part}.jsonl.gz", rows)
        tokenise(rows, tokenizer, is_scored=True)
        jobs = jobs_of(rows)
        stored = labels_of(rows)
        for name in ("quick", "thorough"):
            found = scored(name, options.model, rows, jobs, options.jobs)
            stored |= {f"{name}_{key}": value for key, value in found.items()}
        np.savez_compressed(options.scores / f"{part}.npz", **stored)


if __name__ == "__main__":
    main()
