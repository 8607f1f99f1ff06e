"""Print how the shipped blend of the readers does on sources that trained neither of them.

    python -m training.left_out .train/scores src/promptguard/data/model

`.train/scores` is what the `score` stage of training and `training.word_pairs` wrote. The numbers
stand in docs/results.md as the honest estimate beside the public test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from promptguard.model.artifact import open_artifact
from training.calibrate import load_scores, with_gloss
from training.score import macro, matched


def main() -> None:
    """Print AUC and recall, sources alike, by the quick reader alone and by both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    manifest = open_artifact(options.model).manifest
    scores = with_gloss(load_scores(options.scores), manifest.gloss.share)
    for task, output in (("message", "attack"), ("context", "turn"), ("document", "document")):
        quick, thorough = (
            scores[f"{reader}_{task}"].reshape(len(scores["task"]), -1)[:, 0]
            for reader in ("quick", "thorough")
        )
        picked = scores["is_dev"] & (scores["task"] == task)
        blend = manifest.calibration[output].both
        both = blend.quick * quick + blend.thorough * thorough
        for name, values in (("quick", quick), ("both", both)):
            print(f"{task:9} {name:6} {measures(scores, values, picked)}")


def measures(scores: dict[str, np.ndarray], values: np.ndarray, picked: np.ndarray) -> str:
    """Return the measures of some examples in one line."""
    columns = (values[picked], scores["attack"][picked], scores["source"][picked])
    found = [column.tolist() for column in columns]
    line = ", ".join(f"{name} {value:.3f}" for name, value in macro(*found).items())
    return f"{line}, within {matched(*found):.3f}"


if __name__ == "__main__":
    main()
