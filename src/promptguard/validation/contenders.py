"""Who is measured, and the outcome of each on a case.

A contender is a configuration of the engine or of the evaluation of single prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from promptguard.config import ControllerConfig, PromptGuardConfig, Settings
from promptguard.core.ensemble import MERGES
from promptguard.errors import DataError
from promptguard.evaluation import PromptGuard
from promptguard.signals import load_signals
from promptguard.turns.judge import MODEL_SIGNALS, TurnJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A named configuration.

    `is_part` marks what a combination is made of, so that the report can say what only all
    together caught. `counts_hard` False leaves the rules' hard blocks out.
    """

    name: str
    settings: ControllerConfig | PromptGuardConfig
    is_part: bool = False
    counts_hard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Openers:
    """Makers of judge and guard; picklable where several processes are used."""

    judge: Callable[[ControllerConfig], TurnJudge] = TurnJudge.open
    guard: Callable[[PromptGuardConfig], PromptGuard] = PromptGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One contender's judgement of one case; `error` is not empty where it could not judge.

    `score` in [0,1] ranks cases. `risks` are the scores turn by turn, `turn_ms` how long each
    took (empty where it was not measured). `prior` and `nats`, what each signal weighed, are of the
    turn that decided: the first flagged one, else the riskiest. `cost_usd` is None where unknown.
    """

    index: int
    contender: str
    score: float = 0.0
    is_flagged: bool = False
    flagged_turn: int | None = None
    is_hard: bool = False
    risks: tuple[float, ...] = ()
    turn_ms: tuple[float, ...] = ()
    prior: float = 0.0
    nats: tuple[tuple[str, float], ...] = ()
    cost_usd: float | None = 0.0
    error: str = ""

    @property
    def turns(self) -> int:
        """How many turns were judged."""
        return len(self.risks)


Outcomes = dict[str, tuple[Outcome, ...]]
"""A contender's name to its outcomes, in the order of the cases."""


def engine(name: str, settings: Settings) -> Contender:
    """Return the engine as configured."""
    return Contender(name=name, settings=settings.conversation)


def dissected(settings: Settings, *, types: tuple[str, ...] | None = None) -> tuple[Contender, ...]:
    """Return the engine, its halves, every evaluation type alone, and every merge of them."""
    whole, asked = settings.conversation, settings.evaluation
    chosen = types or asked.evaluation_types
    # `weighted` refuses a type without a weight, and is to be compared in any case.
    weights = {kind: asked.weights.get(kind, 1.0) for kind in chosen}
    merged = asked.model_copy(update={"evaluation_type": chosen, "weights": weights})
    # Without those that need the model: an absent model must not count as an acquittal.
    rules = tuple(name for name, _ in load_signals(whole.signals) if name not in MODEL_SIGNALS)
    return (
        Contender(name="engine", settings=whole),
        Contender(
            name="rules",
            settings=whole.model_copy(update={"use_model": False, "signals": rules}),
            is_part=True,
        ),
        Contender(
            name="model",
            settings=whole.model_copy(update={"signals": tuple(sorted(MODEL_SIGNALS))}),
            is_part=True,
            counts_hard=False,
        ),
        *(
            Contender(
                name=kind,
                settings=asked.model_copy(update={"evaluation_type": (kind,)}),
                is_part=True,
            )
            for kind in chosen
        ),
        *(
            Contender(
                name=f"ensemble/{strategy}",
                settings=merged.model_copy(update={"ensemble_strategy": strategy}),
            )
            for strategy in (MERGES.names() if len(chosen) > 1 else ())
        ),
    )


def outcomes_to_line(outcomes: tuple[Outcome, ...]) -> str:
    """Return the outcomes of one case as one line of JSON."""
    # Most fields of most outcomes have their defaults, and a journal has a line for every case.
    return _OUTCOMES.dump_json(outcomes, exclude_defaults=True).decode()


def outcomes_from_line(line: str | bytes) -> tuple[Outcome, ...]:
    """Read what `outcomes_to_line` wrote."""
    try:
        return _OUTCOMES.validate_json(line)
    except ValidationError:
        raise DataError("The journal holds a line that no run wrote; begin a new one.") from None


_OUTCOMES: TypeAdapter[tuple[Outcome, ...]] = TypeAdapter(tuple[Outcome, ...])
