"""The coherence signal tells a pivot from a return."""

from __future__ import annotations

import pytest
from turn_contexts import current_turn, direction, past_turn

from promptguard.signals.coherence import coherence
from promptguard.state import TopicSummary
from promptguard.vector import Vector, pack_vector

WEATHER, CHEMISTRY = direction(1.0), direction(0.0, 1.0)


def _past(vector: Vector, first: int = 10) -> list:
    return [past_turn(turn=first + turn, vector=vector) for turn in range(5)]


def test_a_risky_jump_scores_its_distance() -> None:
    """From the weather to synthesis is as far as it gets."""
    result = coherence(current_turn(past=_past(WEATHER), risk=0.8, embedding=CHEMISTRY))
    assert result.score == pytest.approx(1.0, abs=0.01)
    assert result.reason.startswith("risky pivot")


def test_a_harmless_jump_scores_nothing() -> None:
    """People change the subject; only a risky turn is asked where it comes from."""
    assert coherence(current_turn(past=_past(WEATHER), risk=0.1, embedding=CHEMISTRY)).score == 0.0


def test_staying_on_the_subject_scores_nothing() -> None:
    """A risky turn on the subject at hand is no jump."""
    result = coherence(current_turn(past=_past(WEATHER), risk=0.8, embedding=WEATHER))
    assert result.score == pytest.approx(0.0, abs=0.01)


def test_a_return_is_no_pivot() -> None:
    """Going back to an earlier segment is measured from there, and named."""
    earlier = TopicSummary(
        first_turn=0,
        last_turn=4,
        key_terms=(),
        centroid=pack_vector(direction(0.2, 1.0)),
        mean_risk=0.3,
        peak_risk=0.6,
    )
    turn = {"past": _past(WEATHER), "risk": 0.8, "embedding": CHEMISTRY}
    pivot = coherence(current_turn(**turn))
    returned = coherence(current_turn(**turn, state={"segments": (earlier,)}))
    assert returned.score < 0.1 < pivot.score
    assert returned.reason == "risky return to turns 0-4 (peak risk 0.60)"


def test_the_segment_being_talked_about_is_no_return() -> None:
    """A segment that reaches into the window is the present, not the past."""
    present = TopicSummary(
        first_turn=8,
        last_turn=12,
        key_terms=(),
        centroid=pack_vector(CHEMISTRY),
        mean_risk=0.0,
        peak_risk=0.0,
    )
    ctx = current_turn(
        past=_past(WEATHER), risk=0.8, embedding=CHEMISTRY, state={"segments": (present,)}
    )
    assert coherence(ctx).reason.startswith("risky pivot")


@pytest.mark.parametrize("embedding", [None, direction(1.0)[:4]])
def test_without_comparable_vectors_nothing_is_said(embedding: Vector | None) -> None:
    """No model, or a state written by another one, is no evidence."""
    ctx = current_turn(past=_past(WEATHER), risk=0.9, embedding=embedding)
    assert coherence(ctx).score == 0.0
