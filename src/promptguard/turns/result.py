"""What became of a judged turn: the verdict, whether it is enforced, and the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from promptguard.errors import Blocked
from promptguard.risk.policy import STEERING
from promptguard.state import ReplyKind, SessionState
from promptguard.verdict import Action, Evidence, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What became of a turn.

    `action` is what the policy says; in detect mode it is only reported and `is_enforced` is
    False. `reply` is the model's answer, the refusal, or None where no model is configured.
    `withheld` are the messages that must be replaced before the list that was judged goes on to
    a model, by their index in it.
    """

    state: SessionState
    verdict: Verdict
    is_enforced: bool
    reply: str | None = None
    reply_kind: ReplyKind = ReplyKind.NONE
    withheld: tuple[int, ...] = ()

    @property
    def action(self) -> Action:
        """What the policy says."""
        return self.verdict.action

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What speaks for and against an attack in this turn, in nats."""
        return self.verdict.evidence

    @property
    def is_blocked(self) -> bool:
        """Whether the turn was kept from the model."""
        return self.is_enforced and self.action is Action.BLOCK

    @property
    def notice(self) -> str:
        """What the model is to be told after the application's own words; mostly nothing."""
        is_steered = self.is_enforced and self.action in (Action.STEER, Action.REVIEW)
        return STEERING if is_steered else ""

    @property
    def stripped(self) -> tuple[int, ...]:
        """Which contents must be replaced before the turn goes on, by index."""
        if not self.is_enforced:
            return ()
        return tuple(f.index for f in self.verdict.content if f.action is Action.STRIP)

    def raise_if_blocked(self) -> Self:
        """Return the result; raises Blocked where the turn must not go on."""
        if self.is_blocked:
            raise Blocked("The turn was blocked; `verdict` says why.", self.verdict)
        return self
