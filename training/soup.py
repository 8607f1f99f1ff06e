"""Step 6: average the runs, step back towards where they began as far as that helps.

    python -m training.soup --base BASE --data .train/data --aligned aligned.pt --out OUT RUN...

The share of the beginning mixed in is chosen on the development sources alone; the test data is
not scored here. Writes the weights in fp16, in parts of at most 15 MiB.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from training.network import Network, load_base
from training.records import at_most
from training.score import macro, matched
from training.train import DEVICE, load_sets, report, score_rows
from training.weighing import Row

SHARES = (0.0, 0.15, 0.3)
PART_BYTES = 15 * 2**20


def mixed(
    states: list[dict[str, Tensor]], aligned: dict[str, Tensor], share: float
) -> dict[str, Tensor]:
    """Return the mean of the runs with `share` of the aligned encoder mixed in; heads untouched."""
    mean = {key: torch.stack([s[key].float() for s in states]).mean(0) for key in states[0]}
    return {
        key: value if "head" in key else (1 - share) * value + share * aligned[key].float()
        for key, value in mean.items()
    }


def worth(rows: list[Row], scores: np.ndarray) -> float:
    """Return one number for the development set: single texts and matched conversations."""
    total = 0.0
    for kind, column in (("message", scores[:, 0]), ("context", scores[:, 0] + scores[:, 4])):
        picked = [i for i, row in enumerate(rows) if row["task"] == kind]
        values = column[picked].tolist()
        labels = [rows[i]["attack"] for i in picked]
        sources = [rows[i]["source"] for i in picked]
        result = macro(values, labels, sources)
        total += result["auc"] + result["r5"] + matched(values, labels, sources)
    return total


def main() -> None:
    """Average, choose the share, write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--aligned", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--per-source", type=int, help="at most so many rows of a source and label")
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    rows = load_sets(options, ("dev",))["dev"]
    if options.per_source:
        rows = at_most(rows, options.per_source, lambda row: (row["source"], row["attack"]))
    aligned = torch.load(options.aligned, map_location="cpu")
    states = [torch.load(run, map_location="cpu") for run in options.runs]
    network: Network = load_base(options.base).to(DEVICE)
    found = {}
    for share in options.shares:
        network.load_state_dict(mixed(states, aligned, share))
        scores = score_rows(network, rows)
        found[share] = worth(rows, scores)
        print(f"share {share}: {found[share]:.3f}", flush=True)
        report("dev", rows, scores)
    chosen = max(found, key=lambda share: found[share])
    print(f"chosen share {chosen}")
    network.load_state_dict(mixed(states, aligned, chosen))
    options.out.mkdir(parents=True, exist_ok=True)
    blob = save(
        {key: value.half().contiguous().cpu() for key, value in network.state_dict().items()}
    )
    for index in range(0, len(blob), PART_BYTES):
        (options.out / f"weights.{index // PART_BYTES}").write_bytes(
            blob[index : index + PART_BYTES]
        )


if __name__ == "__main__":
    main()
