"""Print how several runs do on the same records, both readers in a fixed proportion.

    python -m training.compare .train/scores-old .train/scores [--gloss 0.4]

Each folder is what the stage `score` wrote. No blend is fitted, so that runs which were never
calibrated can be compared; message and turn are added for talks, as the engine weighs both.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from training.calibrate import with_gloss
from training.left_out import measures

QUICK, THOROUGH = 0.45, 0.55
TASKS = ("message", "context", "document")


def main() -> None:
    """Print one line for each run, set and task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", nargs="+", type=Path)
    parser.add_argument("--gloss", type=float, default=0.0, help="share of the logits of glosses")
    options = parser.parse_args()
    for folder in options.scores:
        for part in ("dev", "held"):
            with np.load(folder / f"{part}.npz") as stored:
                scores = dict(stored)
            if options.gloss:
                scores = with_gloss(scores, options.gloss)
            for task in TASKS:
                line = measures(scores, logits_of(scores, task), scores["task"] == task)
                print(f"{folder} {part:5} {task:9} {line}")


def logits_of(scores: dict[str, np.ndarray], task: str) -> np.ndarray:
    """Return what both readers say of each example, as the heads of one task see it."""
    heads = ("message", "context") if task == "context" else (task,)
    return sum((_mixed(scores, head) for head in heads), start=np.zeros(len(scores["task"])))


def _mixed(scores: dict[str, np.ndarray], head: str) -> np.ndarray:
    mixed = QUICK * scores[f"quick_{head}"] + THOROUGH * scores[f"thorough_{head}"]
    # The first column of a head decides.
    return mixed[:, 0] if mixed.ndim > 1 else mixed


if __name__ == "__main__":
    main()
