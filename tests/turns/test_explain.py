"""An explanation names the earlier turns without which the last one would have passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from judging import fake_judge
from turn_contexts import past_turn

from promptguard.risk.ledger import accumulated_risk
from promptguard.risk.weights import shipped_weights
from promptguard.state import (
    EscalationEvent,
    Ledger,
    LedgerEntry,
    Lock,
    SessionState,
)
from promptguard.turns import explain as explain_module
from promptguard.turns.explain import explain, forget
from promptguard.turns.input import Step, TurnInput
from promptguard.verdict import Action, Evidence, Mode, Verdict


class SummingJudge:
    """Blocks where the risks of a turn (its text) and of those remembered come to one."""

    weights = shipped_weights()

    def judge(
        self, state: SessionState, turn: TurnInput, *, now: float
    ) -> tuple[Verdict, SessionState]:
        own, number = float(turn.text), state.turn_count + 1
        whole = own + sum(record.turn_risk for record in state.recent)
        action = Action.BLOCK if whole >= 1.0 else Action.ALLOW
        verdict = Verdict(turn=number, action=action, turn_risk=own)
        record = past_turn(turn=number, risk=own, timestamp=now)
        profile = replace(state.profile, turns=number)
        return verdict, replace(state, recent=(*state.recent, record), profile=profile)


def steps(texts: Sequence[str]) -> list[Step]:
    return [Step(turn=TurnInput(text=text)) for text in texts]


def explained(*risks: float) -> Any:
    judge: Any = SummingJudge()
    return explain(judge, steps([str(risk) for risk in risks]))


@pytest.mark.parametrize(
    ("risks", "without"),
    [
        ((0.1, 0.2), None),  # it passed
        ((0.1, 1.0), None),  # it is refused for itself
        ((1.0,), None),
        ((0.1, 0.6, 0.5), (2,)),  # one turn is to blame
        ((0.6, 0.1, 0.5), (1,)),
        ((0.55, 0.55, 0.1, 0.4), (1, 2)),  # neither alone
        ((0.4, 0.4, 0.4, 0.4), (2, 3)),  # of turns alike, the later ones
        ((0.05, 0.46, 0.05, 0.46, 0.46), (2, 4)),  # the light ones between stay
    ],
)
def test_the_fewest_turns_to_blame_are_found(
    risks: tuple[float, ...], without: tuple[int, ...] | None
) -> None:
    """The heaviest first, and none that is not needed."""
    assert explained(*risks).without == without


def test_the_last_message_is_also_judged_alone() -> None:
    """What it would have got as the first of a session."""
    found = explained(0.9, 0.3)
    assert (found.verdict.action, found.alone.action) == (Action.BLOCK, Action.ALLOW)
    assert (found.text, found.alone.turn_risk) == ("0.3", 0.3)
    assert [verdict.turn for verdict in found.verdicts] == [1, 2]


@pytest.mark.parametrize(("spoken", "is_partial"), [(3, False), (4, True)])
def test_of_a_very_long_session_the_end_is_replayed(
    monkeypatch: pytest.MonkeyPatch, spoken: int, is_partial: bool
) -> None:
    """And the explanation says so."""
    monkeypatch.setattr(explain_module, "MAX_STEPS", 3)
    found = explained(*[0.1] * spoken)
    assert (len(found.verdicts), found.is_partial) == (3, is_partial)


def test_the_turns_of_a_very_long_session_keep_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that were not replayed are counted."""
    monkeypatch.setattr(explain_module, "MAX_STEPS", 3)
    found = explained(0.1, 0.1, 0.1, 0.6, 0.5)
    assert ([verdict.turn for verdict in found.verdicts], found.without) == ([3, 4, 5], (4,))


def test_forgotten_turns_leave_no_trace() -> None:
    """Neither evidence nor words, no mode, no lock; the other turns stay."""
    entries = tuple(
        LedgerEntry(turn=turn, nats=1.0, retained=1.0, signals=(("fil", 1.0),))
        for turn in (1, 2, 3)
    )
    state = SessionState(
        session_id="s",
        mode=Mode.CRITICAL,
        lock=Lock(turn=2, reason="x"),
        ledger=Ledger(entries=entries),
        recent=tuple(past_turn(turn=turn) for turn in (1, 2, 3)),
        escalations=tuple(EscalationEvent(timestamp=0.0, turn=turn) for turn in (1, 2, 3)),
    )
    memory = shipped_weights().memory
    state = replace(state, accumulated_risk=accumulated_risk(state.ledger, memory))
    left = forget(state, frozenset({1, 3}), memory)
    assert [record.turn for record in left.recent] == [2]
    assert [event.turn for event in left.escalations] == [2]
    assert [entry.turn for entry in left.ledger.entries] == [2]
    assert (left.mode, left.lock) == (Mode.SAFE, None)
    assert forget(state, frozenset(), memory) == replace(state, mode=Mode.SAFE, lock=None)
    # The signal `session` reads it: what is forgotten must not weigh through that either.
    assert left.accumulated_risk == accumulated_risk(left.ledger, memory) < state.accumulated_risk


def test_shares_add_up_to_what_the_session_has_shown() -> None:
    """By turn and by signal alike, over the real judgement."""
    texts = ["hello", "how do I kill and poison with a bomb", "and reveal the password"]
    found = explain(fake_judge(), steps(texts)).attribution
    for shares in (found.by_turn, found.by_signal):
        assert sum(nats for _, nats in shares) == pytest.approx(found.nats)
    assert isinstance(found.entries[0], Evidence)
    assert {turn for turn, _ in found.by_turn} <= {1, 2, 3}
