"""The adaptive numbers of the layer, fitted to labelled conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.config import TemporalSettings
from promptguard.conversation import Role
from promptguard.errors import DataError
from promptguard.fil.engine import FrozenInstinct, Reading
from promptguard.fil.parameters import FilParameters
from promptguard.fil.temporal import fold_residue
from promptguard.protocols import FilReading
from promptguard.state import RECENT_TURNS, ConversationHistory, ConversationMessage, Residue
from promptguard.text import read_text

_GRID: dict[str, tuple[float, ...]] = {
    "half_life_s": (60.0, 180.0, 600.0, 1800.0, 7200.0),
    "cumulative_threshold": (0.25, 0.5, 0.75, 1.0, 1.5, 2.5),
    "escalation_threshold": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}
# The best value of one number depends on the others, so that one round is not enough.
_PASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedText:
    """What a user wrote, and when, in seconds."""

    text: str
    timestamp: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledConversation:
    """The user's messages in order, and whether they are an attack."""

    messages: tuple[TimedText, ...]
    is_attack: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Share of attacks and of innocent conversations in which a message is blocked."""

    caught: float
    false_alarms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSettings:
    """The fitted numbers and what they reach on the conversations they were fitted to."""

    settings: TemporalSettings
    before: Rates
    after: Rates


_Step = tuple[Reading, float]
"""A message that was read, and when it was written."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """What stays of a judged message."""

    directives: tuple[str, ...]
    harm_score: float
    message: ConversationMessage


def fit_parameters(
    conversations: Sequence[LabelledConversation],
    *,
    layer: FrozenInstinct | None = None,
    max_false_alarms: float = 0.01,
) -> FittedSettings:
    """Return the half-life and thresholds that catch most at few false alarms.

    One number after the other is tried, three times round. A setting that raises false alarms
    above `max_false_alarms` and above today's share is never taken, and of equal ones the
    present one is kept. Raises DataError unless there are conversations of both kinds.
    """
    if len({conversation.is_attack for conversation in conversations}) < 2:
        raise DataError("Fitting needs attacks and innocent conversations.")
    engine = layer or FrozenInstinct.load()
    # Read once: what the texts say does not depend on the numbers that are tried.
    steps = [(_read(engine, item), item.is_attack) for item in conversations]
    settings = _present(engine.parameters)
    before = best = _rates(engine, steps)
    allowed = max(max_false_alarms, before.false_alarms)
    for _ in range(_PASSES):
        for name, values in _GRID.items():
            for value in values:
                tried = settings.model_copy(update={name: value})
                rates = _rates(engine.with_settings(tried), steps)
                if rates.false_alarms <= allowed and _gain(rates) > _gain(best):
                    settings, best = tried, rates
    return FittedSettings(settings=settings, before=before, after=best)


def _gain(rates: Rates) -> float:
    return rates.caught - rates.false_alarms


def _present(parameters: FilParameters) -> TemporalSettings:
    return TemporalSettings(
        half_life_s=parameters.decay.half_life_s,
        cumulative_threshold=parameters.counterfactual.threshold,
        escalation_threshold=parameters.escalation.rising_last_at_least,
    )


def _read(engine: FrozenInstinct, conversation: LabelledConversation) -> tuple[_Step, ...]:
    return tuple(
        (engine.read(read_text(message.text)), message.timestamp)
        for message in conversation.messages
    )


def _rates(
    engine: FrozenInstinct, conversations: Sequence[tuple[tuple[_Step, ...], bool]]
) -> Rates:
    blocked = [(_is_blocked(engine, steps), is_attack) for steps, is_attack in conversations]
    attacks = [is_blocked for is_blocked, is_attack in blocked if is_attack]
    innocent = [is_blocked for is_blocked, is_attack in blocked if not is_attack]
    return Rates(caught=sum(attacks) / len(attacks), false_alarms=sum(innocent) / len(innocent))


def _is_blocked(engine: FrozenInstinct, steps: Sequence[_Step]) -> bool:
    turns: list[_Turn] = []
    residues: tuple[Residue, ...] = ()
    for read, now in steps:
        # Only blocked messages leave an event, and the walk ends at the first of them.
        past = ConversationHistory(
            messages=tuple(turn.message for turn in turns), residues=residues, escalation_events=()
        )
        reading = engine.judge(read, past, now=now)
        if reading.is_blocking:
            return True
        turns.append(_turn(reading, now))
        if len(turns) > RECENT_TURNS:
            residues = fold_residue(residues, turns.pop(0))
    return False


def _turn(reading: FilReading, now: float) -> _Turn:
    message = ConversationMessage(
        role=Role.USER,
        content="",
        timestamp=now,
        harm_score=reading.harm_score,
        fil_violations=frozenset(reading.violated),
        is_flagged=reading.is_blocking,
        concepts=frozenset(reading.concepts),
    )
    return _Turn(reading.violated, reading.harm_score, message)
