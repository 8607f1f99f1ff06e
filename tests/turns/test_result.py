"""What becomes of a judged turn follows from the verdict and from whether it is enforced."""

from __future__ import annotations

import pytest

from promptguard.errors import Blocked
from promptguard.risk.policy import STEERING
from promptguard.state import SessionState
from promptguard.turns.result import TurnResult
from promptguard.verdict import Action, ContentFinding, Evidence, Verdict


def result(action: Action, *, enforced: bool = True, **fields: object) -> TurnResult:
    verdict = Verdict(turn=1, action=action, **fields)  # type: ignore[arg-type]
    return TurnResult(
        state=SessionState(session_id="s"), verdict=verdict, is_enforced=enforced, reply="no"
    )


def finding(index: int, action: Action) -> ContentFinding:
    return ContentFinding(index=index, origin="tool", risk=0.5, action=action)


@pytest.mark.parametrize("action", list(Action))
def test_only_an_enforced_block_keeps_a_turn_from_the_model(action: Action) -> None:
    """In detect mode everything passes and is reported."""
    assert result(action).is_blocked is (action is Action.BLOCK)
    assert not result(action, enforced=False).is_blocked
    assert result(action, enforced=False).action is action


@pytest.mark.parametrize("action", list(Action))
def test_the_model_is_warned_where_the_turn_is_steered_or_reviewed(action: Action) -> None:
    """And only where that is enforced."""
    is_warned = action in (Action.STEER, Action.REVIEW)
    assert result(action).notice == (STEERING if is_warned else "")
    assert result(action, enforced=False).notice == ""


def test_contents_to_strip_are_named_by_their_place() -> None:
    """Those that only look odd stay, and in detect mode all do."""
    content = (
        finding(0, Action.ALLOW),
        finding(1, Action.STRIP),
        finding(2, Action.BLOCK),
        finding(3, Action.STRIP),
    )
    assert result(Action.STRIP, content=content).stripped == (1, 3)
    assert result(Action.STRIP, enforced=False, content=content).stripped == ()
    assert result(Action.ALLOW).stripped == ()


def test_a_block_is_an_error_only_where_the_caller_asks() -> None:
    """The error holds the verdict and says nothing of the text; other turns pass through."""
    blocked = result(Action.BLOCK, is_hard=True)
    with pytest.raises(Blocked) as raised:
        blocked.raise_if_blocked()
    assert raised.value.verdict is blocked.verdict
    assert str(raised.value) == "The turn was blocked; `verdict` says why."
    for passing in (result(Action.STRIP), result(Action.BLOCK, enforced=False)):
        assert passing.raise_if_blocked() is passing


def test_the_evidence_is_the_verdicts() -> None:
    """One verdict, not a copy of it."""
    evidence = (Evidence(turn=1, signal="fil", nats=1.0),)
    assert result(Action.ALLOW, evidence=evidence).evidence is evidence
