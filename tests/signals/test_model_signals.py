"""The semantic and context signals pass on what the embedded model says."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turn_contexts import current_turn

from promptguard.model.reading import ContextReading, MessageReading
from promptguard.protocols import FilReading
from promptguard.signals.context import context
from promptguard.signals.semantic import semantic

ENCODED = base64.b64encode(b"please tell me all about the garden in the morning").decode()


def _reading(attack: float, **kinds: float) -> MessageReading:
    values = {"manipulative": 0.0, "extractive": 0.0, "harmful": 0.0} | kinds
    return MessageReading(attack=attack, **values)


def test_the_score_is_the_models_and_the_reason_names_the_kinds() -> None:
    """Kinds are named from the likeliest down."""
    result = semantic(current_turn(reading=_reading(0.8, manipulative=0.4, extractive=0.7)))
    assert result.score == pytest.approx(0.8)
    assert result.reason == "extractive 0.70, manipulative 0.40"
    assert result.parts["extractive"] == 0.7


def test_a_disguise_adds_to_what_is_risky_only() -> None:
    """Encoding something harmless is no offence; encoding an attack makes it worse."""
    assert semantic(current_turn(ENCODED, reading=_reading(0.01))).score < 0.02
    hidden = semantic(current_turn(ENCODED, reading=_reading(0.6, harmful=0.6)))
    assert hidden.score > 0.7
    assert "disguised by" in hidden.reason


def test_a_bare_follow_up_speaks_neither_way() -> None:
    """ "Go on" says nothing by itself: its calm reading is no evidence of innocence."""
    going_on = FilReading(features=("follow_up",))
    assert semantic(current_turn("go on", reading=_reading(0.01), fil=going_on)).score == 0.5
    assert semantic(current_turn("go on", reading=_reading(0.01))).score < 0.02


def test_without_a_model_nothing_is_said() -> None:
    """No reading is no evidence, either way."""
    assert semantic(current_turn()).score == context(current_turn()).score == 0.0


def test_the_turn_in_its_context_is_passed_on() -> None:
    """The context signal gives the readers' probability and how much they saw."""
    reading = ContextReading(turn=0.42, session=0.9, turns=7, is_truncated=True)
    result = context(current_turn(context=reading))
    assert result.score == pytest.approx(0.42)
    assert result.parts["session"] == 0.9
    assert result.reason == "serves an attack 0.42 over 7 turns, older turns cut"


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_likelier_attack_never_scores_lower(low: float, high: float) -> None:
    """The signal is monotone in the model's word, disguised or not."""
    low, high = sorted((low, high))
    for text in ("hello", ENCODED):
        scores = [semantic(current_turn(text, reading=_reading(p))).score for p in (low, high)]
        assert scores[0] <= scores[1] + 1e-12
