"""Step 7: blend and calibrate the readers on text they did not learn from; write the manifest.

    python -m training.calibrate .train/scores src/promptguard/data/model --version V

`.train/scores` holds the raw logits of both readers on held-out and development examples, as the
`score` stage of training writes them, and `word_pairs` logits are added here. Each record weighs
so that every source and label counts alike. Coefficients are held at or above zero: no reader's
word is ever turned round. How much the thorough reader counts beside the quick one is fitted on the
development sources, none of which either has learned from, and on held-out records in other
languages than English, of which these have few, each half; the scale on all.
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

FILES = ("quick.onnx", "thorough.onnx", "thorough.npz", "tokenizer.json", "word_pairs.npz")
BENIGN_ABOVE = 0.02
LEAST_OF_A_SOURCE = 50  # a handful of records must not decide a proportion
BASES = {
    "quick": "all-MiniLM-L6-v2 with Han characters and word pieces of 22 languages added",
    "thorough": "all-mpnet-base-v2 with the same vocabulary",
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


def blended(
    values: np.ndarray, labels: np.ndarray, sources: np.ndarray, halves: list[np.ndarray]
) -> np.ndarray:
    """Return the blend of both readers: its proportion from two sets of examples that count alike,
    its scale and shift from all."""
    # The quick reader alone, where no half of the examples holds both labels.
    ratio = np.array([1.0, 0.0])
    keys = list(zip(sources.tolist(), labels.tolist(), strict=True))
    sizes = Counter(keys)
    is_large = np.array([sizes[key] >= LEAST_OF_A_SOURCE for key in keys])
    weights = np.zeros(len(labels))
    for half in halves:
        chosen = half & is_large
        if len(set(labels[chosen].tolist())) == 2:
            weights[chosen] += weights_of(sources[chosen], labels[chosen])
    if weights.any():
        found = fitted(values, labels, weights)[:2]
        ratio = found / found.sum() if found.sum() else ratio
    one = fitted((values @ ratio)[:, None], labels, weights_of(sources, labels))
    return np.array([one[0] * ratio[0], one[0] * ratio[1], one[1]])


def columns(
    name: str, held: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return one output's logits (quick, thorough), labels, sources, and which rows they are."""
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
    # A label of -1 means that nobody knows.
    kept = is_task & (labels >= 0)
    return np.stack([quick, thorough], 1)[kept], labels[kept], held["source"][kept], kept


def load_scores(folder: Path) -> dict[str, np.ndarray]:
    """Return the logits and labels of the held-out and the development examples together."""
    parts = []
    for name in ("held", "dev"):
        with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
            part = {key: stored[key] for key in stored.files}
        pairs = np.load(folder / f"pairs_{name}.npy")
        parts.append(part | {"pairs": pairs, "is_dev": np.full(len(pairs), name == "dev")})
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--data", type=Path, required=True, help="manifest of the prepared data")
    options = parser.parse_args()
    held = load_scores(options.scores)
    halves = [held["is_dev"], ~held["is_dev"] & (held["lang"] != "en")]
    manifest = {
        "name": "promptguard-readers",
        "version": options.version,
        "license": "Apache-2.0",
        "base": BASES,
        "sha256": {n: hashlib.sha256((options.model / n).read_bytes()).hexdigest() for n in FILES},
        "calibration": {},
        "thresholds": {},
        "data": json.loads(options.data.read_text())["sources"],
    }
    for name in OUTPUTS:
        values, labels, sources, kept = columns(name, held)
        weights = weights_of(sources, labels)
        alone = fitted(values[:, :1], labels, weights)
        both = blended(values, labels, sources, [half[kept] for half in halves])
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
