"""Step 9: fit probabilities and thresholds on held-out data, write the manifest.

    python -m training.calibrate .train/data/held.jsonl.gz src/promptguard/data/model --version V

The held-out part holds authored and permissive records the model was not trained on. Each
record weighs so that every source and label counts alike. Uses the shipped int8 model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from promptguard.conversation import Message, Role
from promptguard.model.artifact import OUTPUTS, open_artifact
from promptguard.model.encoder import LocalEncoder
from training.records import at_most, read

FILES = ("model.onnx", "tokenizer.json", "word_pairs.npz")
BENIGN_ABOVE = 0.02
PER_SOURCE = 250


def identity_manifest(folder: Path, version: str, data: dict[str, int]) -> dict[str, object]:
    """Return a manifest whose calibration changes nothing."""
    return {
        "name": "promptguard-minilm",
        "version": version,
        "license": "Apache-2.0",
        "base": "all-MiniLM-L6-v2 with Han characters and word pieces of 18 languages added",
        "sha256": {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in FILES},
        "calibration": {name: {"scale": 1.0, "shift": 0.0} for name in (*OUTPUTS, "context")},
        "thresholds": dict.fromkeys((*OUTPUTS, "context"), 0.5),
        "data": data,
    }


def logit(probability: float) -> float:
    """Return the log-odds of a probability."""
    kept = min(max(probability, 1e-7), 1 - 1e-7)
    return math.log(kept / (1 - kept))


def weights_of(rows: list[dict], labels: np.ndarray) -> np.ndarray:
    """Return weights under which sources count alike within a label, and labels alike."""
    counts = Counter((row["source"], int(y)) for row, y in zip(rows, labels, strict=True))
    sources = Counter(label for _, label in counts)
    return np.array(
        [
            0.5 / sources[int(y)] / counts[(row["source"], int(y))]
            for row, y in zip(rows, labels, strict=True)
        ]
    )


def platt(values: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return scale and shift with the least weighted log loss."""

    def loss(parameters: np.ndarray) -> float:
        odds = parameters[0] * values + parameters[1]
        return float((weights * (np.logaddexp(0, odds) - labels * odds)).sum())

    found = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead")
    return float(max(found.x[0], 0.05)), float(found.x[1])


def weighted_quantile(values: np.ndarray, weights: np.ndarray, above: float) -> float:
    """Return the value that `above` of the weight exceeds."""
    order = np.argsort(-values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, above)])


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("held", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    rows = at_most(
        read(options.held), PER_SOURCE, lambda row: (row["source"], row["attack"], row["task"])
    )
    counts = json.loads((options.held.parent / "manifest.json").read_text())["sources"]
    manifest = identity_manifest(options.model, options.version, counts)
    path = options.model / "manifest.json"
    path.write_text(json.dumps(manifest, indent=1) + "\n")
    encoder = LocalEncoder(open_artifact(options.model))
    messages = [row for row in rows if row["task"] == "message"]
    readings = [encoder.read_messages([row["said"][0][1]])[0] for row in messages]
    for index, name in enumerate(OUTPUTS):
        truth = np.array(
            [row["attack"] if not index else row["kinds"][index - 1] for row in messages]
        )
        known = truth >= 0
        chosen = [row for row, keep in zip(messages, known, strict=True) if keep]
        values = np.array(
            [logit(getattr(r, name)) for r, k in zip(readings, known, strict=True) if k]
        )
        fit(manifest, name, values, truth[known], weights_of(chosen, truth[known]))
    contexts = [row for row in rows if row["task"] == "context" and len(row["said"]) > 1]
    values = np.array(
        [
            logit(
                encoder.read_context(
                    [Message(role=Role(r), content=t) for r, t in row["said"]]
                ).attack
            )
            for row in contexts
        ]
    )
    truth = np.array([row["attack"] for row in contexts])
    fit(manifest, "context", values, truth, weights_of(contexts, truth))
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def fit(
    manifest: dict, name: str, values: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> None:
    """Put one output's calibration and threshold into the manifest."""
    scale, shift = platt(values, labels, weights)
    benign = labels == 0
    bar = weighted_quantile(values[benign], weights[benign], BENIGN_ABOVE)
    threshold = 1 / (1 + math.exp(-(scale * bar + shift)))
    caught = float(weights[~benign][values[~benign] > bar].sum() / weights[~benign].sum())
    manifest["calibration"][name] = {"scale": round(scale, 4), "shift": round(shift, 4)}
    manifest["thresholds"][name] = round(threshold, 4)
    print(
        f"{name}: scale {scale:.3f} shift {shift:.3f} threshold {threshold:.3f} "
        f"recall {caught:.3f} n {len(values)}"
    )


if __name__ == "__main__":
    main()
