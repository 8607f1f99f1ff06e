"""How calibrated probabilities become truth, indeterminacy and falsehood on the published scale."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.trust import ROLE_CONFUSION_F

DECISION = ROLE_CONFUSION_F
"""Falsehood of a probability at its shipped threshold: beyond it the trust mathematics sees role
confusion, and the balance is -1."""

# Probabilities are calibrated as if every other text were an attack. Most are not, so that up to
# four fifths of the threshold a probability says little.
_NEAR = (0.8, 0.3)
# Truth falls slowly while the judge leans to innocent, stays level where it is undecided and falls
# to 0 beyond the decision. With the published balance this makes a lone user layer reciprocal up
# to F = 0.44 and borderline from there to F = 0.6.
_TRUTH = ((0.0, 1.0), (0.3, 0.86), (0.42, 0.73), (0.6, 0.72), (DECISION, 0.6), (1.0, 0.0))
_FLOOR = 0.1  # no reading of a text alone is ever certain
_CLOSE, _SPLIT, _STRANGE, _CUT = 0.5, 0.25, 0.8, 0.45


def falsehood_of(probability: float, threshold: float) -> float:
    """Return a falsehood that grows with the probability and is 0.65 at its threshold."""
    bar = min(max(threshold, 1e-6), 1.0 - 1e-6)
    near, falsehood = _NEAR
    return _along(((0.0, 0.0), (near * bar, falsehood), (bar, DECISION), (1.0, 1.0)), probability)


def truth_of(falsehood: float) -> float:
    """Return the truth that goes with a falsehood."""
    return _along(_TRUTH, falsehood)


def indeterminacy_of(
    falsehood: float,
    *,
    disagreement: float = 0.0,
    familiarity: float = 1.0,
    is_truncated: bool = False,
) -> float:
    """Return how far the value is undecided, in [0.1, 1].

    Each reason takes its share of the certainty that is left: closeness to the decision,
    windows that disagree, characters that the vocabulary does not know, text that was not read.
    """
    width = DECISION if falsehood < DECISION else 1.0 - DECISION
    closeness = (1.0 - abs(falsehood - DECISION) / width) ** 2
    certainty = 1.0 - _FLOOR
    certainty *= 1.0 - _CLOSE * closeness
    certainty *= 1.0 - _SPLIT * disagreement
    certainty *= 1.0 - _STRANGE * (1.0 - familiarity)
    return 1.0 - (certainty * (1.0 - _CUT) if is_truncated else certainty)


def either(one: float, other: float) -> float:
    """Return the noisy or of two independent grounds."""
    return 1.0 - (1.0 - one) * (1.0 - other)


def value_of(falsehood: float, indeterminacy: float) -> Neutrosophic:
    """Return the value of a layer with this falsehood."""
    return Neutrosophic(truth_of(falsehood), min(1.0, max(0.0, indeterminacy)), falsehood)


def _along(knots: Sequence[tuple[float, float]], at: float) -> float:
    if at <= knots[0][0]:
        return knots[0][1]
    if at >= knots[-1][0]:
        return knots[-1][1]
    index = bisect_right([x for x, _ in knots], at)
    (x0, y0), (x1, y1) = knots[index - 1], knots[index]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
