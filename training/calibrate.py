"""Step 7: blend and calibrate the readers on text they did not learn from; write the manifest.

    python -m training.calibrate .train/scores src/promptguard/data/model --version V

`.train/scores` holds the raw logits of both readers on held-out and development examples, as the
`score` stage of training writes them, and `word_pairs` logits are added here. Each record weighs
so that every source and label counts alike. Coefficients are held at or above zero: no reader's
word is ever turned round.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from promptguard.model.artifact import MESSAGE_OUTPUTS, OUTPUTS

FILES = ("quick.onnx", "thorough.onnx", "tokenizer.json", "word_pairs.npz")
BENIGN_ABOVE = 0.02
BASES = {
    "quick": "all-MiniLM-L6-v2 with Han characters and word pieces of 22 languages added",
    "thorough": "six layers of all-mpnet-base-v2 with the same vocabulary",
}


def weights_of(sources: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return weights under which sources count alike within a label, and labels alike."""
    keys = list(zip(sources.tolist(), labels.tolist(), strict=True))
    counts = Counter(keys)
    per_label = Counter(label for _, label in counts)
    return np.array([0.5 / per_label[label] / counts[(s, label)] for s, label in keys])


def fitted(values: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return coefficients (at least zero) and the shift with the least weighted log loss."""

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        odds = values @ parameters[:-1] + parameters[-1]
        off = weights * (1 / (1 + np.exp(-odds)) - labels)
        value = (weights * (np.logaddexp(0, odds) - labels * odds)).sum()
        return float(value), np.append(values.T @ off, off.sum())

    start = np.append(np.full(values.shape[1], 0.5), 0.0)
    bounds = [(0.0, None)] * values.shape[1] + [(None, None)]
    found: np.ndarray = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return found


def threshold(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the log-odds that a small share of the innocent weight exceeds."""
    order = np.argsort(-values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, BENIGN_ABOVE)])


def columns(name: str, held: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one output's logits (quick, thorough), labels and sources, where both are known."""
    if name in MESSAGE_OUTPUTS:
        index = MESSAGE_OUTPUTS.index(name)
        is_task = held["task"] == "message"
        labels = held["attack"] if not index else held["kinds"][:, index - 1]
        quick = held["quick_message"][:, index] + held["pairs"][:, index]
        thorough = held["thorough_message"][:, index]
    elif name == "document":
        is_task, labels = held["task"] == "document", held["attack"]
        quick, thorough = held["quick_document"], held["thorough_document"]
    else:
        index = ("turn", "session").index(name)
        is_task = (held["task"] == "context") | (held["task"] == "message")
        labels = held["session"] if index else held["attack"]
        quick, thorough = held["quick_context"][:, index], held["thorough_context"][:, index]
    kept = is_task & (labels >= 0)
    return np.stack([quick, thorough], 1)[kept], labels[kept], held["source"][kept]


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--data", type=Path, required=True, help="manifest of the prepared data")
    options = parser.parse_args()
    with np.load(options.scores, allow_pickle=False) as stored:
        held = {name: stored[name] for name in stored.files}
    manifest = {
        "name": "promptguard-readers",
        "version": options.version,
        "license": "Apache-2.0",
        "base": BASES,
        "sha256": {
            n: hashlib.sha256((options.model / n).read_bytes()).hexdigest() for n in FILES
        },
        "calibration": {},
        "thresholds": {},
        "data": json.loads(options.data.read_text())["sources"],
    }
    for name in OUTPUTS:
        values, labels, sources = columns(name, held)
        weights = weights_of(sources, labels)
        alone = fitted(values[:, :1], labels, weights)
        both = fitted(values, labels, weights)
        manifest["calibration"][name] = {
            "alone": {"quick": round(alone[0], 4), "shift": round(alone[1], 4)},
            "both": {
                "quick": round(both[0], 4),
                "thorough": round(both[1], 4),
                "shift": round(both[2], 4),
            },
        }
        odds = values[:, 0] * alone[0] + alone[1]
        innocent = labels == 0
        bar = threshold(odds[innocent], weights[innocent])
        manifest["thresholds"][name] = round(float(1 / (1 + np.exp(-bar))), 4)
        print(f"{name}: {len(labels)} examples, alone {alone.round(3)}, both {both.round(3)}")
    (options.model / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
