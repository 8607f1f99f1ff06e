"""The parts of one prompt, in order of priority, and their weighted mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, pairwise

from promptguard.core.neutrosophic import Neutrosophic

UNEVALUATED = Neutrosophic(0.0, 0.5, 0.0)
NO_LAYERS = Neutrosophic(0.0, 1.0, 0.0)
ROLE_CONFUSION_F = 0.65
DETECTION_F = math.nextafter(ROLE_CONFUSION_F, 1.0)
"""The lowest falsehood that is a detection on the published scale, whose bound is exclusive."""


class LayerPriority(IntEnum):
    """Who wrote a layer; the number is its priority and its weight."""

    SYSTEM = 100
    APPLICATION = 50
    USER = 10

    @property
    def is_trusted(self) -> bool:
        """Whether the layer is the developer's rather than the user's."""
        return self is not LayerPriority.USER


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One part of a prompt and what was found in it.

    `evaluations` are the values the layer received. Its value is `merged` where a merge
    strategy made one, else their mean, else (0, 0.5, 0). `detection_f` is the falsehood from
    which the judges of this layer call it a violation.
    """

    priority: LayerPriority
    name: str
    chars: int = 0
    evaluations: tuple[Neutrosophic, ...] = ()
    merged: Neutrosophic | None = None
    detection_f: float = DETECTION_F

    @property
    def value(self) -> Neutrosophic:
        """What the layer counts for."""
        if self.merged is not None:
            return self.merged
        return mean_of(self.evaluations) if self.evaluations else UNEVALUATED

    @property
    def is_detection(self) -> bool:
        """Whether the layer is a violation."""
        return self.value.falsehood >= self.detection_f

    @property
    def truth_variance(self) -> float:
        """How far the evaluations differ in truth (population variance)."""
        return variance(tuple(value.truth for value in self.evaluations))


class MultiNeutrosophicPrompt:
    """A prompt as layers, the highest priority first; equal priorities keep their order."""

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self.layers = tuple(sorted(layers, key=lambda layer: -layer.priority))

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def neighbours(self) -> tuple[tuple[Layer, Layer], ...]:
        """Return adjacent layers, (higher, lower)."""
        return tuple(pairwise(self.layers))

    def pairs(self) -> tuple[tuple[Layer, Layer], ...]:
        """Return every two layers, (higher, lower)."""
        return tuple(combinations(self.layers, 2))

    def aggregate(self) -> Neutrosophic:
        """Return the mean of the layers weighted by priority; (0, 1, 0) without layers."""
        if not self.layers:
            return NO_LAYERS
        return weighted_mean(
            tuple(layer.value for layer in self.layers),
            tuple(float(layer.priority) for layer in self.layers),
        )


def mean_of(values: Sequence[Neutrosophic]) -> Neutrosophic:
    """Return the mean of at least one value, component by component."""
    return weighted_mean(values, (1.0,) * len(values))


def weighted_mean(values: Sequence[Neutrosophic], weights: Sequence[float]) -> Neutrosophic:
    """Return Σ w·x / Σ w; the weights are not negative and do not sum to zero."""
    components = zip(*(value.as_tuple() for value in values), strict=True)
    return Neutrosophic(*(_weighted(tuple(numbers), weights) for numbers in components))


def variance(numbers: Sequence[float]) -> float:
    """Return the population variance; 0 for fewer than two numbers."""
    if len(numbers) < 2:
        return 0.0
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((number - mean) ** 2 for number in numbers) / len(numbers)


def _weighted(numbers: Sequence[float], weights: Sequence[float]) -> float:
    # fsum rounds once, so the order of the members cannot show; the bounds undo its last digit.
    total = math.fsum(w * x for w, x in zip(weights, numbers, strict=True)) / math.fsum(weights)
    return min(max(total, min(numbers)), max(numbers))
