"""Step 5: average the runs, step back towards the aligned base as far as that helps, score.

    python -m training.soup --base BASE --data .train/data --aligned aligned.pt --out OUT RUN...

The share of the aligned weights mixed in is chosen on the development sources alone. Writes the
weights in fp16, in parts of at most 15 MiB, and the raw scores of every set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from training.batches import Row
from training.network import Network, load_base
from training.score import auc, macro, matched, threshold_at
from training.train import DEVICE, load_sets, report, score_rows

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


def by_source(name: str, rows: list[Row], scores: np.ndarray) -> None:
    """Print where each source stands: AUC of attacks, share of benign above the 5 % bar."""
    for kind in ("message", "context"):
        column = scores[:, 0] if kind == "message" else scores[:, 0] + scores[:, 4]
        picked = [i for i, row in enumerate(rows) if row["task"] == kind]
        pool = np.array([column[i] for i in picked if not rows[i]["attack"]])
        bar = threshold_at(pool, 0.05)
        for source in sorted({rows[i]["source"] for i in picked}):
            for label in (0, 1):
                own = np.array(
                    [
                        column[i]
                        for i in picked
                        if rows[i]["source"] == source and rows[i]["attack"] == label
                    ]
                )
                if len(own):
                    line = f"auc {auc(own, pool):.3f}" if label else ""
                    print(
                        f"{name} {kind} {source} {label} n={len(own)} "
                        f"above {np.mean(own > bar):.3f} {line}"
                    )


def main() -> None:
    """Average, choose the share, write weights and scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--aligned", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    sets = load_sets(options, ("held", "dev", "test"))
    aligned = torch.load(options.aligned, map_location="cpu")
    states = [torch.load(run, map_location="cpu") for run in options.runs]
    network: Network = load_base(options.base).to(DEVICE)
    best, chosen = -1.0, 0.0
    for share in SHARES:
        network.load_state_dict(mixed(states, aligned, share))
        scores = score_rows(network, sets["dev"])
        print(f"share {share}: {worth(sets['dev'], scores):.3f}")
        report("dev", sets["dev"], scores)
        if worth(sets["dev"], scores) > best:
            best, chosen = worth(sets["dev"], scores), share
    print(f"chosen share {chosen}")
    network.load_state_dict(mixed(states, aligned, chosen))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in sets.items():
        scores = score_rows(network, rows)
        report(name, rows, scores)
        if name != "held":
            by_source(name, rows, scores)
        np.save(options.out / f"{name}.npy", scores.astype(np.float16))
    blob = save(
        {key: value.half().contiguous().cpu() for key, value in network.state_dict().items()}
    )
    for index in range(0, len(blob), PART_BYTES):
        (options.out / f"weights.{index // PART_BYTES}").write_bytes(
            blob[index : index + PART_BYTES]
        )


if __name__ == "__main__":
    main()
