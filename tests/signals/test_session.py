"""How the session goes: signals `session`, `trajectory`, `behavior` and `response`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turn_contexts import current_turn, past_turn, past_turns

from promptguard.model.reading import MessageReading
from promptguard.protocols import ClientHints, SignalScore
from promptguard.signals.session import (
    behavior,
    least_squares_slope,
    response,
    session,
    shape_of,
    trajectory,
)
from promptguard.state import Action, ReplyKind, SessionProfile

PAST = [past_turn("a", turn=1), past_turn("b", turn=2)]
READING = MessageReading(manipulative=0.0, extractive=0.0, harmful=0.0, attack=0.0)
RISKS = st.lists(st.floats(0.0, 1.0), max_size=12)
LONG = "could you tell me a little more about the garden of your aunt"
SUBJECT = "Tell me about padlocks"


def _after(risk: float, semantic: float | None) -> float:
    """Return the score of a turn whose message alone got `semantic`."""
    reading = None if semantic is None else READING
    earlier = {} if semantic is None else {"semantic": semantic}
    ctx = current_turn(
        "c", past=PAST, state={"accumulated_risk": risk}, reading=reading, earlier=earlier
    )
    return session(ctx).score


def test_the_past_counts_for_a_message_in_doubt() -> None:
    """Wholly at even odds, and above."""
    assert _after(0.8, 0.5) == pytest.approx(0.8)
    assert _after(0.8, 0.9) == pytest.approx(0.8)


def test_a_harmless_message_is_not_held_to_the_past() -> None:
    """The less doubt, the less of it counts."""
    assert _after(0.8, 0.01) == 0.0
    assert 0.0 < _after(0.8, 0.2) < _after(0.8, 0.4) < 0.8


def test_without_readers_the_past_counts_as_it_is() -> None:
    """Nothing says that the message is harmless."""
    assert _after(0.7, None) == pytest.approx(0.7)


def test_a_first_turn_has_no_past() -> None:
    """Whatever the state says."""
    ctx = current_turn("hello", past=PAST[:1], state={"accumulated_risk": 0.9})
    assert session(ctx).score == 0.0


def _risen(*risks: float) -> SignalScore:
    past = [past_turn(turn=turn, risk=risk) for turn, risk in enumerate(risks[:-1])]
    return trajectory(current_turn(past=past, risk=risks[-1]))


def test_a_steady_climb_is_named_and_scores_its_rise() -> None:
    """From nothing to certainty without a step back is the whole score."""
    result = _risen(0.0, 0.25, 0.5, 0.75, 1.0)
    assert result.score == pytest.approx(1.0)
    assert result.reason.startswith("climbing")
    assert result.parts["slope"] == pytest.approx(0.25)


def test_a_slow_climb_counts_like_a_quick_one() -> None:
    """The rise over the window counts, however many turns it took."""
    slow = _risen(*(turn / 9 for turn in range(10))).score
    assert slow == pytest.approx(_risen(0.0, 0.5, 1.0).score)


@pytest.mark.parametrize("risks", [(0.9,), (0.1, 0.9)])
def test_fewer_than_three_turns_say_nothing(risks: tuple[float, ...]) -> None:
    """Two points are no trend."""
    assert _risen(*risks).score == 0.0


@pytest.mark.parametrize(
    ("risks", "name"),
    [
        ((0.7, 0.7, 0.7, 0.7), "persistent"),
        ((0.05, 0.0, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.8), "spike"),
        ((0.8, 0.1, 0.8, 0.1, 0.8, 0.1), "oscillating"),
    ],
)
def test_shapes_are_named(risks: tuple[float, ...], name: str) -> None:
    """What does not climb but is risky all the same is named by its shape."""
    result = _risen(*risks)
    assert result.score > 0.1
    assert result.reason.startswith(name)


def test_falling_or_calm_risk_says_nothing() -> None:
    """Neither a fall nor small talk is an escalation."""
    assert _risen(0.9, 0.4, 0.1).score == 0.0
    assert _risen(*([0.03, 0.01, 0.02] * 3)).score == 0.0


def test_order_matters() -> None:
    """The same risks in another order score differently."""
    assert _risen(0.1, 0.3, 0.6, 0.9).score > _risen(0.6, 0.1, 0.9, 0.3).score


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12))
def test_the_slope_is_the_least_squares_slope(risks: list[float]) -> None:
    """It agrees with a textbook fit."""
    expected = np.polyfit(range(len(risks)), risks, 1)[0]
    assert least_squares_slope(risks) == pytest.approx(expected, abs=1e-6)


@given(RISKS)
def test_scores_stay_within_bounds(risks: list[float]) -> None:
    """No run of risks leaves [0,1]."""
    assert 0.0 <= shape_of(risks).score <= 1.0


@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=9))
def test_only_the_last_ten_turns_count(risks: list[float]) -> None:
    """What lies before the window changes nothing."""
    window = ([0.2] * 10 + risks)[-10:]
    assert _risen(0.9, 0.9, *window).score == _risen(*window).score


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
        (ClientHints(typing_ms=5e-324), True),
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


def _answered(*replies: ReplyKind | None, risk: float = 0.8) -> SignalScore:
    past = [
        past_turn(SUBJECT, turn=turn, risk=risk, reply=reply) for turn, reply in enumerate(replies)
    ]
    return response(current_turn("and then?", past=past))


def test_a_refusal_is_evidence_about_the_request() -> None:
    """More than a partial answer, more than none."""
    refused, partial = _answered(ReplyKind.REFUSED), _answered(ReplyKind.PARTIAL)
    assert refused.score > partial.score > 0.0
    assert refused.reason == "refused at turn 0"


def test_detail_counts_by_the_risk_of_what_was_asked() -> None:
    """A recipe for bread is no leak."""
    assert _answered(ReplyKind.OPERATIONAL, risk=0.0).score == 0.0
    assert _answered(ReplyKind.OPERATIONAL, risk=0.8).score > 0.4


def test_giving_in_after_a_refusal_is_erosion() -> None:
    """Refused, then answered on the same subject: the worst sign."""
    result = _answered(ReplyKind.REFUSED, ReplyKind.PARTIAL, ReplyKind.OPERATIONAL)
    assert result.score >= 0.9
    assert result.reason == "refused at turn 0, operational at turn 2"
    assert result.parts["shift"] == 1.0
    assert _answered(ReplyKind.REFUSED, ReplyKind.COMPLIED).score < result.score


def test_an_answer_on_another_subject_is_no_erosion() -> None:
    """Refusing one thing and answering another is as it should be."""
    past = [
        past_turn(SUBJECT, turn=0, reply=ReplyKind.REFUSED),
        past_turn("Which bread keeps longest?", turn=1, reply=ReplyKind.COMPLIED),
    ]
    assert response(current_turn(past=past)).score == 0.0


def test_a_refusal_is_counted_once() -> None:
    """Only the newest answer speaks; what was said of older ones stands in the ledger."""
    assert _answered(ReplyKind.REFUSED, None).score == 0.0


def test_the_guards_own_refusal_is_no_evidence() -> None:
    """A block must not feed on itself."""
    past = [past_turn(SUBJECT, reply=ReplyKind.REFUSED, action=Action.BLOCK)]
    assert response(current_turn(past=past)).score == 0.0


@pytest.mark.parametrize("replies", [(), (ReplyKind.NONE,), (None,), (ReplyKind.COMPLIED,)])
def test_nothing_to_read_says_nothing(replies: tuple[ReplyKind | None, ...]) -> None:
    """No answer, or a plain one, is no evidence."""
    assert _answered(*replies).score == 0.0
