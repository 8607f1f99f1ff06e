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
from training.calibrate import load_scores
from training.score import macro, matched


def main() -> None:
    """Print AUC and recall, sources alike, by the quick reader alone and by both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    scores = load_scores(options.scores)
    blends = open_artifact(options.model).manifest.calibration
    wording = scores["quick_message"][:, 0] + scores["pairs"][:, 0]
    for task, output, quick, thorough in (
        ("message", "attack", wording, scores["thorough_message"][:, 0]),
        ("context", "turn", scores["quick_context"][:, 0], scores["thorough_context"][:, 0]),
        ("document", "document", scores["quick_document"], scores["thorough_document"]),
    ):
        picked = scores["is_dev"] & (scores["task"] == task)
        blend = blends[output].both
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
