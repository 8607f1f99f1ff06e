"""The bundled conversations: their messages, and how each turn must be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import GetPydanticSchema as Schema
from pydantic_core import core_schema

from promptguard.config import ControllerConfig
from promptguard.errors import ConfigError, DataError
from promptguard.verdict import Action, Mode, Verdict

Kind = Literal["attack", "ordinary"]
Intervention = Literal["release", "false_alarm"]
# A file writes modes by their names.
_ModeName = Annotated[
    Mode, BeforeValidator(lambda name: next((mode for mode in Mode if mode.name == name), None))
]
_Text = Annotated[str, Field(min_length=1)]
_Risk = Annotated[float, Field(gt=0.0, lt=1.0)]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold once a turn is judged; None asks for nothing.

    `known_miss` says why the shipped engine does not meet it; the demand itself stays what a user
    would want.
    """

    __pydantic_config__: ClassVar = _STRICT

    action: Action | None = None
    min_action: Action | None = None
    max_action: Action | None = None
    min_mode: _ModeName | None = None
    max_mode: _ModeName | None = None
    turn_risk_above: _Risk | None = None
    turn_risk_below: _Risk | None = None
    is_locked: bool | None = None
    known_miss: str = ""

    @property
    def is_demanding(self) -> bool:
        """Whether anything is asked for."""
        return replace(self, known_miss="") != Expectation()

    def faults(self, verdict: Verdict) -> tuple[str, ...]:
        """Return what `verdict` should have been and is not, in words."""
        severity, risk = verdict.action.severity, verdict.turn_risk
        checks = (
            (self.action, lambda e: verdict.action is e, "action {}"),
            (self.min_action, lambda e: severity >= e.severity, "action at least {}"),
            (self.max_action, lambda e: severity <= e.severity, "action at most {}"),
            (self.min_mode, lambda e: verdict.mode >= e, "mode at least {}"),
            (self.max_mode, lambda e: verdict.mode <= e, "mode at most {}"),
            (self.turn_risk_above, lambda e: risk > e, "turn risk above {}"),
            (self.turn_risk_below, lambda e: risk < e, "turn risk below {}"),
            (self.is_locked, lambda e: verdict.is_locked is e, "locked: {}"),
        )
        return tuple(
            words.format(wanted.name if isinstance(wanted, Mode) else wanted)
            for wanted, holds, words in checks
            if wanted is not None and not holds(wanted)
        )


_ASKS_NOTHING = Expectation()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTurn:
    """One user message, the untrusted contents that came with it, and the reply it got.

    The reply is given only where the turn passes. `before` is what an operator does first, and
    `pause_s` how long after the turn before this one comes.
    """

    __pydantic_config__: ClassVar = _STRICT

    user: _Text
    reply: _Text | None = None
    tools: tuple[_Text, ...] = ()
    before: Intervention | None = None
    pause_s: Annotated[float, Field(ge=0.0)] = 30.0
    expect: Expectation = _ASKS_NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Turns repeated `repeat` times; `expect` holds for those without one of their own."""

    __pydantic_config__: ClassVar = _STRICT

    repeat: Annotated[int, Field(ge=1, le=1000)]
    turns: Annotated[tuple[ScenarioTurn, ...], Field(min_length=1)]
    expect: Expectation = _ASKS_NOTHING

    def unrolled(self) -> tuple[ScenarioTurn, ...]:
        """Return every turn as it is said."""
        own = (
            t if t.expect is not _ASKS_NOTHING else replace(t, expect=self.expect)
            for t in self.turns
        )
        return tuple(own) * self.repeat


def _unrolled(items: Sequence[_Block | ScenarioTurn]) -> tuple[ScenarioTurn, ...]:
    parts = (item.unrolled() if isinstance(item, _Block) else (item,) for item in items)
    return tuple(turn for part in parts for turn in part)


# A file may write turns that come again as a block.
_Turns = Annotated[
    tuple[ScenarioTurn, ...],
    Schema(
        lambda _, handler: core_schema.no_info_after_validator_function(
            _unrolled,
            handler.generate_schema(
                Annotated[tuple[_Block | ScenarioTurn, ...], Field(min_length=1)]
            ),
        )
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation with the application's prompt (`system`) and the settings it runs under."""

    __pydantic_config__: ClassVar = _STRICT

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    title: _Text
    lang: Annotated[str, Field(pattern=r"^[a-z]{2}$")]
    kind: Kind
    description: _Text
    turns: _Turns
    system: str = ""
    config: ControllerConfig = field(default_factory=ControllerConfig)

    @property
    def is_missed(self) -> bool:
        """Whether the shipped engine is known to miss one of the expectations."""
        return any(turn.expect.known_miss for turn in self.turns)


_SCENARIO = TypeAdapter(Scenario)


@cache
def shipped_scenarios() -> tuple[Scenario, ...]:
    """Return the bundled conversations in the order of their ids."""
    folder = files("promptguard") / "data" / "scenarios"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".json"))
    return tuple(
        scenario_from_json((folder / name).read_text(encoding="utf-8"), where=name)
        for name in names
    )


def scenario_from_json(text: str | bytes, *, where: str = "scenario") -> Scenario:
    """Read one conversation; raises DataError naming the part with the wrong form."""
    try:
        return _SCENARIO.validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "file"
        raise DataError(f"{where}: {place}: {fault['msg']}.") from None
    except ConfigError as error:
        raise DataError(f"{where}: config: {error}") from None
