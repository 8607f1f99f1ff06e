"""Signal `information_gathering`: what is X, how does X work, where is X weak, how to beat X."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from promptguard.protocols import Subject, TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.signals.phrases import Phrase, phrases_in
from promptguard.signals.subject import is_same_subject
from promptguard.verdict import SignalScore

_STEPS = (Phrase.DEFINITION, Phrase.MECHANISM, Phrase.WEAKNESS, Phrase.EXPLOIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    question_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A turn as a link of a chain; `is_follow_up` where it names no subject of its own."""

    turn: int
    step: int
    subject: Subject
    position: int

    @property
    def is_follow_up(self) -> bool:
        return not self.subject.terms


@lru_cache(maxsize=4)
def gathering_step(folded: str) -> int:
    """Return 1..4 for the furthest step a question takes, 0 for none.

    Of a long message the beginning and the end are read: a pasted document asks nothing.
    """
    limit = _tuning().question_chars
    text = folded if len(folded) <= 2 * limit else f"{folded[:limit]} {folded[-limit:]}"
    phrases = phrases_in(text)
    return max((step for step, kind in enumerate(_STEPS, 1) if kind in phrases), default=0)


@SIGNALS.register("information_gathering")
def information_gathering(ctx: TurnContext) -> SignalScore:
    """Return the steps of the longest ordered chain on one subject that ends here, over 4."""
    chain = _chain(ctx)
    if not chain:
        return SignalScore(name="information_gathering", score=0.0)
    steps = ", ".join(f"{_STEPS[asked.step - 1].value} (turn {asked.turn})" for asked in chain)
    score = len(chain) / len(_STEPS)
    return SignalScore(
        name="information_gathering", score=score, reason=steps, parts={"steps": float(len(chain))}
    )


def _chain(ctx: TurnContext) -> tuple[_Asked, ...]:
    """Return the longest run of rising steps on the current turn's subject, oldest first."""
    step = gathering_step(ctx.views.folded)
    if not step:
        return ()
    asked = [
        _Asked(turn=turn.turn, step=turn.gathering_step, subject=then, position=index)
        for index, (turn, then) in enumerate(zip(ctx.state.recent, ctx.subjects.past, strict=True))
        if 0 < turn.gathering_step <= step
    ]
    position = len(ctx.state.recent)
    asked.append(_Asked(turn=ctx.turn, step=step, subject=ctx.subjects.now, position=position))
    best: list[tuple[_Asked, ...]] = []
    for index, later in enumerate(asked):
        before = [
            # the same step asked again takes the place of the earlier asking
            best[earlier] if asked[earlier].step < later.step else best[earlier][:-1]
            for earlier in range(index)
            if asked[earlier].step <= later.step and _continues(asked[earlier], later)
        ]
        best.append((*max(before, key=len, default=()), later))
    return best[-1]


def _continues(earlier: _Asked, later: _Asked) -> bool:
    """Return whether `later` asks on; "how does it work?" continues the turn before it."""
    if later.is_follow_up and later.position == earlier.position + 1:
        return True
    return is_same_subject(earlier.subject, later.subject)


@cache
def _tuning() -> _Tuning:
    return read_tuning("information_gathering", _Tuning)
