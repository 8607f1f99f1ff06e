"""Fit the weights of the structural features, as falsehood on the published scale.

    python -m training.structure_weights FILE_OR_FOLDER [FILE_OR_FOLDER ...]

Reads records of one user message that may be trained on (`*.jsonl`, `*.jsonl.gz`), lets every
source count alike within its label, and compares how often a feature is stated in attacks and in
innocent text. A feature that is 16 times as frequent in attacks reaches the decision alone; the
scale is logarithmic, so that independent features add up as their evidence does. Rare features
are drawn towards a prior of 6 to 1. Prints the table for `data/structure.toml`.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from promptguard.core.layers import ROLE_CONFUSION_F
from promptguard.signals.structure import Feature, structure
from training.prepare import TRAINABLE
from training.records import read

DECIDING_RATIO = 16.0
PRIOR = {"attack": 0.0006, "benign": 0.0001}
LOWEST, HIGHEST = 0.1, 0.85
PER_SOURCE, FEWEST = 400, 20
MAX_CHARS = 6000
Rates = dict[str, dict[Feature, float]]


def messages(places: list[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield (source, label, text) of every record with one user message."""
    for place in places:
        found = sorted(place.glob("*.jsonl*")) if place.is_dir() else [place]
        for path in found:
            for record in read(path):
                said = [m["content"] for m in record["messages"] if m["role"] == "user"]
                if len(said) == 1 and said[0] and record["flag"] in TRAINABLE:
                    yield record["source"], record["label"], str(said[0])[:MAX_CHARS]


def rates(texts: Iterator[tuple[str, str, str]]) -> Rates:
    """Return how often each feature is stated, per label, averaged over sources."""
    sizes: Counter[tuple[str, str]] = Counter()
    stated: dict[tuple[str, str], Counter[Feature]] = defaultdict(Counter)
    for source, label, text in texts:
        if sizes[source, label] < PER_SOURCE:
            sizes[source, label] += 1
            stated[source, label].update(structure().find([text]).stated)
    averaged: Rates = {}
    for label in PRIOR:
        keys = [key for key, size in sizes.items() if key[1] == label and size >= FEWEST]
        averaged[label] = {
            feature: sum(stated[key][feature] / sizes[key] for key in keys) / len(keys)
            for feature in Feature
        }
    return averaged


def weight(ratio: float) -> float:
    """Return the falsehood that a feature with this likelihood ratio means alone."""
    # A feature that is commoner in innocent text must not count for innocence.
    share = math.log(max(ratio, 1.0)) / math.log(DECIDING_RATIO)
    return min(max(ROLE_CONFUSION_F * share, LOWEST), HIGHEST)


def main() -> None:
    """Print the table, with the rates it rests on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="+", type=Path)
    found = rates(messages(parser.parse_args().places))
    print("[weights]")
    for feature in Feature:
        attack, benign = (found[label][feature] + PRIOR[label] for label in ("attack", "benign"))
        note = (
            f"{found['attack'][feature]:.4f} of attacks, {found['benign'][feature]:.4f} of innocent"
        )
        print(f"{feature} = {weight(attack / benign):.2f}  # {note}")


if __name__ == "__main__":
    main()
