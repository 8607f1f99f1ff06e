"""Step 5b: score examples with the exported readers, on a CPU; some minutes a thousand talks.

    python -m training.score_exported .train/data src/promptguard/data/model .train/sampled \\
        .train/scores --per-kind 30

Instead of the stage `score` of training, where that was not run: what is scored is what ships, the
readers as they are quantised. All development examples are scored and of each held-out source,
label and task at most `--per-kind`; those that are scored are written to a folder of their own, in
the order of the scores, for the steps that read both. `--readers` scores one reader alone, so that
two processes can share the work, and keeps what is stored of the other.
"""

from __future__ import annotations

import argparse
import gzip
import json
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
    if name == "dev":
        return list(rows)
    return list(at_most(rows, per_kind, lambda r: (r["source"], r["attack"], r["task"])))


def write(path: Path, rows: list[Row]) -> None:
    """Write examples as gzipped JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def scored(network: Network, rows: list[Row], jobs: list[Job]) -> Logits:
    """Return the raw logits of one reader."""
    found = nothing_read(len(rows))
    for place, job in enumerate(jobs):
        (told,) = network.run([job[2]])
        take(
            found,
            job,
            {"message": told.message, "context": told.context, "document": told.document},
        )
        if place % EVERY == 0:
            print(f"{place} of {len(jobs)} windows", flush=True)
    return without_gloss(found, rows)


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
    parser.add_argument("--readers", nargs="+", default=["quick", "thorough"])
    options = parser.parse_args()
    tokenizer = open_tokenizer(options.model)
    options.scores.mkdir(parents=True, exist_ok=True)
    for part in ("dev", "held"):
        rows = load(options.data, part, options.per_kind)
        write(options.sampled / f"{part}.jsonl.gz", rows)
        tokenise(rows, tokenizer, is_scored=True)
        jobs = jobs_of(rows)
        for name in options.readers:
            found = scored(reader(name, options.model), rows, jobs)
            stored = {f"{name}_{key}": value for key, value in found.items()}
            np.savez_compressed(options.scores / f"{part}.{name}.npz", **labels_of(rows), **stored)
    for part in ("dev", "held"):
        merge(options.scores, part)


def merge(scores: Path, part: str) -> None:
    """Put what was stored of each reader into one file."""
    found: Logits = {}
    for path in sorted(scores.glob(f"{part}.*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            found |= dict(stored)
    np.savez_compressed(scores / f"{part}.npz", **found)


if __name__ == "__main__":
    main()
