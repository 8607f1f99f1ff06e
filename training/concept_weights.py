"""Fit the weights of the concepts, once for all languages.

    python -m training.concept_weights .train/data src/promptguard/data/concept_weights.json

A logistic regression of "this message is an attack" on the concepts it names and on pairs of them,
over the training messages in every language, each source and label weighing by the root of its
size. Concepts of innocent frames may only lower the odds; hazards, evasions and protected things
may only raise them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from promptguard.patterns.wordlist import shipped_concepts
from promptguard.signals.readings import pairs_of
from promptguard.text.normalize import fold
from training.records import at_most, read

PER_SOURCE = 1500
LEAST_COUNT = 40
STRENGTH = 3e-5


def features_of(text: str) -> list[str]:
    """Return the concepts a text names, and their pairs."""
    names = sorted(shipped_concepts().match(fold(text[:4000])))
    return [*names, *sorted(pairs_of(names))]


def bounds_of(name: str) -> tuple[float | None, float | None]:
    """Return the sign a weight must have."""
    if name.startswith("innocent.") or name.split("+")[-1].startswith("innocent"):
        return None, 0.0
    if name.startswith(("evasion.", "protected.", "hazard.")):
        return 0.0, None
    return None, None


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    rows = at_most(
        (r for r in read(options.data / "train.jsonl.gz") if r["task"] == "message"),
        PER_SOURCE,
        lambda row: (row["source"], row["attack"]),
    )
    found = [features_of(row["said"][0][1]) for row in rows]
    counts = Counter(name for names in found for name in names)
    kept = sorted(name for name, count in counts.items() if count >= LEAST_COUNT)
    place = {name: index for index, name in enumerate(kept)}
    cells = [(i, place[n]) for i, names in enumerate(found) for n in names if n in place]
    at, columns = np.array(cells).T
    matrix = csr_matrix((np.ones(len(at)), (at, columns)), shape=(len(rows), len(kept)))
    labels = np.array([row["attack"] for row in rows], dtype=float)
    # By the root of its size a large source counts more, but does not drown the small ones.
    sizes = Counter((row["source"], row["attack"]) for row in rows)
    weights = np.array([sizes[(row["source"], row["attack"])] ** -0.5 for row in rows])
    for label in (0, 1):
        weights[labels == label] *= 0.5 / weights[labels == label].sum()

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        odds = matrix @ p[:-1] + p[-1]
        off = weights * (1 / (1 + np.exp(-odds)) - labels)
        value = (weights * (np.logaddexp(0, odds) - labels * odds)).sum()
        value += STRENGTH * (p[:-1] ** 2).sum()
        return float(value), np.append(matrix.T @ off + 2 * STRENGTH * p[:-1], off.sum())

    bounds = [*(bounds_of(name) for name in kept), (None, None)]
    fit = minimize(loss, np.zeros(len(kept) + 1), jac=True, bounds=bounds, method="L-BFGS-B").x
    told = {name: round(float(w), 3) for name, w in zip(kept, fit, strict=False) if abs(w) >= 0.02}
    body = {
        "version": 1,
        "fitted_on": f"{len(rows)} training messages",
        "base": round(float(fit[-1]), 3),
        "concepts": {name: w for name, w in told.items() if "+" not in name},
        "pairs": {name: w for name, w in told.items() if "+" in name},
    }
    options.out.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    odds = matrix @ fit[:-1] + fit[-1]
    order = np.argsort(odds)
    ranks = np.empty(len(odds))
    ranks[order] = np.arange(len(odds))
    positive = labels == 1
    auc = (ranks[positive].mean() - (positive.sum() - 1) / 2) / (~positive).sum()
    print(f"{len(rows)} messages, {len(told)} weights, training AUC {auc:.3f}")


if __name__ == "__main__":
    main()
