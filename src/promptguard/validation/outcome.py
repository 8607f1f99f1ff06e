"""What a contender said of one case, in a form that can be written down and taken up again."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from promptguard.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One contender's word on one case; `error` is not empty where it could not judge.

    `score` in [0,1] ranks cases. `risks` are the scores turn by turn, `turn_ms` how long each
    took (empty where it was not measured). `nats` is what each signal weighed at the turn that
    decided: the first flagged one, else the riskiest.
    """

    index: int
    contender: str
    score: float = 0.0
    is_flagged: bool = False
    flagged_turn: int | None = None
    is_hard: bool = False
    risks: tuple[float, ...] = ()
    turn_ms: tuple[float, ...] = ()
    nats: tuple[tuple[str, float], ...] = ()
    cost_usd: float = 0.0
    error: str = ""

    @property
    def turns(self) -> int:
        """How many turns were judged."""
        return len(self.risks)


def outcomes_to_line(outcomes: tuple[Outcome, ...]) -> str:
    """Return the outcomes of one case as one line of JSON."""
    return _OUTCOMES.dump_json(outcomes, exclude_defaults=True).decode()


def outcomes_from_line(line: str | bytes) -> tuple[Outcome, ...]:
    """Read what `outcomes_to_line` wrote."""
    try:
        return _OUTCOMES.validate_json(line)
    except ValidationError:
        raise DataError("The journal holds a line that no run wrote; begin a new one.") from None


_OUTCOMES: TypeAdapter[tuple[Outcome, ...]] = TypeAdapter(tuple[Outcome, ...])
