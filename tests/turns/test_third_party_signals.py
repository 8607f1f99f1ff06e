"""Signals of other packages: without a weight they are refused, and a failure is the judge's."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from promptguard.config import ControllerConfig
from promptguard.errors import ConfigError, EvaluationError
from promptguard.guard import Guard
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.testing import FakeEncoder
from promptguard.turns.judge import TurnJudge


def fails(_: TurnContext) -> NoReturn:
    raise ZeroDivisionError("a fault of somebody else")


def judge_with(**settings: str) -> TurnJudge:
    """A judge in which a signal's function is somebody else's."""
    judge = TurnJudge.open(ControllerConfig(**settings), encoder=FakeEncoder())
    return replace(judge, signals=(*judge.signals[:-1], (judge.signals[-1][0], fails)))


def test_a_signal_without_a_weight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be computed and add nothing, and nobody would know."""
    monkeypatch.setitem(SIGNALS._parts, "theirs", fails)
    with pytest.raises(ConfigError, match=r"'theirs' has no weight; add \[signals\.theirs\]"):
        TurnJudge.open(ControllerConfig(), encoder=FakeEncoder())


@pytest.mark.parametrize(("setting", "is_blocked"), [("block", True), ("allow", False)])
def test_a_signal_that_fails_is_a_turn_that_could_not_be_judged(
    setting: str, is_blocked: bool
) -> None:
    """The settings decide, and the fault is in the verdict."""
    with Guard(judge=judge_with(on_evaluator_error=setting)) as guard:
        result = guard.judge("How do I bake bread?")
    assert result.is_blocked is is_blocked
    assert result.verdict.fault


def test_a_signal_that_fails_can_be_raised() -> None:
    """As an error of this package, which names the signal and quotes nobody."""
    judge = judge_with(on_evaluator_error="raise")
    with Guard(judge=judge) as guard, pytest.raises(EvaluationError, match="ZeroDivisionError"):
        guard.judge("How do I bake bread?")
