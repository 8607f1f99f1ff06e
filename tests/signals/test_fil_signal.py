"""The fil signal passes on the Frozen Instinct Layer's word."""

from __future__ import annotations

from turn_contexts import current_turn

from promptguard.protocols import FilReading
from promptguard.signals.fil import fil


def test_the_score_is_the_clamped_harm() -> None:
    """Harm is passed on as it was stored."""
    reading = FilReading(harm_score=0.45, features=("jailbreak",))
    result = fil(current_turn(fil=reading))
    assert (result.score, result.reason) == (0.45, "jailbreak")


def test_a_hard_violation_is_certain() -> None:
    """A hard violation scores 1 whatever the sum says, and names its directives."""
    result = fil(current_turn(fil=FilReading(harm_score=0.2, is_hard=True, violated=("01b",))))
    assert result.score == 1.0
    assert result.reason == "hard violation; violates 01b"


def test_escalation_lifts_harm_but_makes_none() -> None:
    """An escalation needs something now to be about."""
    rising = ("rising scores",)
    now = FilReading(harm_score=0.3, features=("jailbreak",), escalation=rising)
    assert fil(current_turn(fil=now)).score == 0.6
    assert fil(current_turn(fil=FilReading(harm_score=0.0, escalation=rising))).score == 0.0


def test_a_message_that_shows_nothing_is_not_held_to_the_past() -> None:
    """The layer's sum after an attack is the past's; a harmless turn scores 0."""
    past = FilReading(harm_score=0.8, escalation=("rising scores",), mentioned=("01",))
    assert fil(current_turn(fil=past)).score == 0.0


def test_silence_is_nothing() -> None:
    """No finding, no score, no reason."""
    result = fil(current_turn())
    assert (result.score, result.reason) == (0.0, "")
