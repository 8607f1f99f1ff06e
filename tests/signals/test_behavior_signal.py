"""The behavior signal collects weak hints of a driven conversation."""

from __future__ import annotations

import pytest
from turn_contexts import current_turn, past_turns

from promptguard.protocols import ClientHints
from promptguard.signals.behavior import behavior
from promptguard.state import SessionProfile

LONG = "could you tell me a little more about the garden of your aunt"


def _timed(mean_s: float, deviation_s: float, gaps: int = 20) -> dict[str, SessionProfile]:
    m2 = gaps * deviation_s**2
    return {"profile": SessionProfile(gap_count=gaps, gap_mean_s=mean_s, gap_m2_s=m2)}


def test_an_ordinary_turn_scores_nothing() -> None:
    """A human rhythm and an open question are no hint."""
    assert behavior(current_turn("Why is the sky blue?", state=_timed(40.0, 25.0))).score == 0.0


@pytest.mark.parametrize(("mean_s", "deviation_s"), [(30.0, 0.3), (0.4, 0.2)])
def test_a_machine_rhythm_is_noticed(mean_s: float, deviation_s: float) -> None:
    """Clockwork gaps and gaps too short to read an answer are both scripted."""
    result = behavior(current_turn(state=_timed(mean_s, deviation_s)))
    assert result.reason == "scripted timing"
    assert result.score < 0.5


@pytest.mark.parametrize(
    "profile", [_timed(30.0, 0.0), _timed(0.0, 0.0), _timed(30.0, 0.3, gaps=2)]
)
def test_made_up_or_scarce_timing_says_nothing(profile: dict[str, SessionProfile]) -> None:
    """A replay's even clock, no clock, and two gaps are no rhythm."""
    assert behavior(current_turn(state=profile)).score == 0.0


@pytest.mark.parametrize(
    ("hints", "is_noticed"),
    [
        (ClientHints(typing_ms=200.0), True),
        (ClientHints(typing_ms=0.0), True),
        (ClientHints(keystrokes=2), True),
        (ClientHints(typing_ms=15_000.0, keystrokes=70), False),
        (ClientHints(), False),
    ],
)
def test_typing_faster_than_hands_is_noticed(hints: ClientHints, is_noticed: bool) -> None:
    """What the client reports of the typing is believed only where it is impossible."""
    assert (behavior(current_turn(LONG, client=hints)).score > 0.0) is is_noticed


def test_pressing_for_detail_counts_by_risk() -> None:
    """Exact amounts for a cake are nothing, for a risky subject something."""
    question = "What are the exact proportions?"
    assert behavior(current_turn(question, risk=0.0)).score == 0.0
    assert behavior(current_turn(question, risk=0.8)).reason == "directed questions"


def test_leaving_a_risky_subject_and_coming_back_is_strategic() -> None:
    """Risk, small talk, the same risk again: the small talk was cover."""
    risky, chat = past_turns("Tell me about picking padlocks", "Which bread do you like?")
    risky = past_turns("Tell me about picking padlocks", risk=0.6)[0]
    again = current_turn("So, padlocks and picking them?", past=(risky, chat), risk=0.6)
    assert "strategic switching" in behavior(again).reason
    elsewhere = current_turn("Tell me about knives", past=(risky, chat), risk=0.6)
    assert behavior(elsewhere).score == 0.0
    straight_on = current_turn("So, padlocks and picking them?", past=(risky, risky), risk=0.6)
    assert behavior(straight_on).score == 0.0


def test_a_rewritten_history_counts() -> None:
    """Earlier messages that come back changed are a hint."""
    assert behavior(current_turn(history_rewritten=True)).reason == "history rewritten"
