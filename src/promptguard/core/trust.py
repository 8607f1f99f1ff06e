"""How far the layers of a prompt can be trusted together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from promptguard.core.layers import Layer, MultiNeutrosophicPrompt

# The published scale for LLM judges; docs/concepts.md lists the same numbers.
SATURATION_F = 0.5
SATURATION_CHARS = 5000
NEGATION = 0.7
SCOPE_TRUTH = 0.6
SCOPE_VARIANCE = 0.2
PRESERVED_TRUTH = 0.6
DAMAGING_F = 0.6
PENALTY_ROLE_CONFUSION = 0.3
PENALTY_SATURATION = 0.5


class TrustViolation(StrEnum):
    """A finding that breaks the exchange off."""

    ROLE_CONFUSION = "role_confusion"
    CONTEXT_SATURATION = "context_saturation"


class ContradictionKind(StrEnum):
    """How two layers contradict each other."""

    DIRECT_NEGATION = "direct_negation"
    SCOPE_CONFLICT = "scope_conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two layers at odds, the higher one first."""

    higher: str
    lower: str
    kind: ContradictionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Strength in [0,1], its three parts, and what was found on the way."""

    strength: float
    validity: float
    resolution: float
    coherence: float
    violations: tuple[TrustViolation, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()


def trust_of(prompt: MultiNeutrosophicPrompt) -> Trust:
    """Return the trust between the layers of a prompt."""
    violations = violations_of(prompt)
    at_odds = [
        (high, low, kind)
        for high, low in prompt.pairs()
        if (kind := contradiction_of(high, low)) is not None
    ]
    neighbours = [(high.value, low.value) for high, low in prompt.neighbours()]
    validity = _mean([(1 - high.falsehood) * (0.5 + high.indeterminacy) for high, _ in neighbours])
    coherence = _mean(
        [min(high.truth * (1 - high.falsehood), low.truth) for high, low in neighbours]
    )
    resolution = _resolution([(high, low) for high, low, _ in at_odds])
    strength = min(1.0, max(0.0, (validity + resolution + coherence) / 3))
    if TrustViolation.ROLE_CONFUSION in violations:
        strength *= PENALTY_ROLE_CONFUSION
    if TrustViolation.CONTEXT_SATURATION in violations:
        strength *= PENALTY_SATURATION
    return Trust(
        strength=strength,
        validity=validity,
        resolution=resolution,
        coherence=coherence,
        violations=violations,
        contradictions=tuple(
            Contradiction(higher=high.name, lower=low.name, kind=kind)
            for high, low, kind in at_odds
        ),
    )


def violations_of(prompt: MultiNeutrosophicPrompt) -> tuple[TrustViolation, ...]:
    """Return what breaks the exchange off, in a fixed order."""
    found = []
    if any(layer.is_detection for layer in prompt):
        found.append(TrustViolation.ROLE_CONFUSION)
    if any(
        layer.chars > SATURATION_CHARS and layer.value.falsehood > SATURATION_F for layer in prompt
    ):
        found.append(TrustViolation.CONTEXT_SATURATION)
    return tuple(found)


def contradiction_of(higher: Layer, lower: Layer) -> ContradictionKind | None:
    """Return how two layers contradict each other, or None."""
    one, two = higher.value, lower.value
    if (one.truth > NEGATION and two.falsehood > NEGATION) or (
        one.falsehood > NEGATION and two.truth > NEGATION
    ):
        return ContradictionKind.DIRECT_NEGATION
    spread = max(higher.truth_variance, lower.truth_variance)
    if min(one.truth, two.truth) > SCOPE_TRUTH and spread > SCOPE_VARIANCE:
        return ContradictionKind.SCOPE_CONFLICT
    return None


def _resolution(at_odds: list[tuple[Layer, Layer]]) -> float:
    if not at_odds:
        return 1.0
    preserved = damaged = 0
    for higher, lower in at_odds:
        if min(higher.value.truth, lower.value.truth) > PRESERVED_TRUTH:
            preserved += 1
        elif max(higher.value.falsehood, lower.value.falsehood) > DAMAGING_F:
            damaged += 1
    count = len(at_odds)
    return preserved / count * (1 - 0.5 * damaged / count)


def _mean(numbers: list[float]) -> float:
    return fmean(numbers) if numbers else 1.0
