"""The bundled conversations: their messages, and how each turn must be judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.config import ControllerConfig
from promptguard.errors import ConfigError, DataError
from promptguard.verdict import Action, Mode, Verdict

ModeName = Literal["SAFE", "CAUTIOUS", "ELEVATED", "SUSPECT", "CRITICAL", "UNSAFE"]
Kind = Literal["attack", "ordinary"]
Intervention = Literal["release", "false_alarm"]
_Text = Annotated[str, Field(min_length=1)]
_Risk = Annotated[float, Field(gt=0.0, lt=1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold once a turn is judged; None asks for nothing.

    `known_miss` says why the shipped engine does not meet it; the demand itself stays what a user
    would want.
    """

    action: Action | None = None
    min_action: Action | None = None
    max_action: Action | None = None
    min_mode: Mode | None = None
    max_mode: Mode | None = None
    turn_risk_above: float | None = None
    turn_risk_below: float | None = None
    is_locked: bool | None = None
    known_miss: str = ""

    @property
    def is_demanding(self) -> bool:
        """Whether anything is asked for."""
        return any(value is not None for value in _demands(self))

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
            words.format(_named(wanted))
            for wanted, holds, words in checks
            if wanted is not None and not holds(wanted)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTurn:
    """One user message, the untrusted contents that came with it, and the reply it got.

    The reply is given only where the turn passes. `before` is what an operator does first, and
    `pause_s` how long after the turn before this one comes.
    """

    user: str
    reply: str | None = None
    tools: tuple[str, ...] = ()
    before: Intervention | None = None
    pause_s: float = 30.0
    expect: Expectation = field(default_factory=Expectation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation with the application's prompt (`system`) and the settings it runs under."""

    id: str
    title: str
    lang: str
    kind: Kind
    description: str
    turns: tuple[ScenarioTurn, ...]
    system: str = ""
    config: ControllerConfig = field(default_factory=ControllerConfig)

    @property
    def is_missed(self) -> bool:
        """Whether the shipped engine is known to miss one of the expectations."""
        return any(turn.expect.known_miss for turn in self.turns)


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
        body = _ScenarioFile.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "file"
        raise DataError(f"{where}: {place}: {fault['msg']}.") from None
    except ConfigError as error:
        raise DataError(f"{where}: config: {error}") from None
    return Scenario(
        id=body.id,
        title=body.title,
        lang=body.lang,
        kind=body.kind,
        description=body.description,
        turns=tuple(turn for item in body.turns for turn in _unrolled(item)),
        system=body.system,
        config=body.config,
    )


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _ExpectFile(_Part):
    action: Action | None = None
    min_action: Action | None = None
    max_action: Action | None = None
    min_mode: ModeName | None = None
    max_mode: ModeName | None = None
    turn_risk_above: _Risk | None = None
    turn_risk_below: _Risk | None = None
    is_locked: bool | None = None
    known_miss: str = ""


class _TurnFile(_Part):
    user: _Text
    reply: _Text | None = None
    tools: tuple[_Text, ...] = ()
    before: Intervention | None = None
    pause_s: float = Field(default=30.0, ge=0.0)
    expect: _ExpectFile | None = None


class _BlockFile(_Part):
    """Turns repeated `repeat` times; `expect` holds for those without one of their own."""

    repeat: int = Field(ge=1, le=1000)
    turns: tuple[_TurnFile, ...] = Field(min_length=1)
    expect: _ExpectFile | None = None


class _ScenarioFile(_Part):
    id: str = Field(pattern=r"^[a-z0-9-]+$")
    title: _Text
    lang: str = Field(pattern=r"^[a-z]{2}$")
    kind: Kind
    description: _Text
    turns: tuple[_BlockFile | _TurnFile, ...] = Field(min_length=1)
    system: str = ""
    config: ControllerConfig = ControllerConfig()


def _unrolled(item: _BlockFile | _TurnFile) -> Iterator[ScenarioTurn]:
    if isinstance(item, _TurnFile):
        yield _turn(item, None)
        return
    for _ in range(item.repeat):
        for turn in item.turns:
            yield _turn(turn, item.expect)


def _turn(item: _TurnFile, default: _ExpectFile | None) -> ScenarioTurn:
    return ScenarioTurn(
        user=item.user,
        reply=item.reply,
        tools=item.tools,
        before=item.before,
        pause_s=item.pause_s,
        expect=_expectation(item.expect or default or _ExpectFile()),
    )


def _expectation(body: _ExpectFile) -> Expectation:
    return Expectation(
        action=body.action,
        min_action=body.min_action,
        max_action=body.max_action,
        min_mode=Mode[body.min_mode] if body.min_mode else None,
        max_mode=Mode[body.max_mode] if body.max_mode else None,
        turn_risk_above=body.turn_risk_above,
        turn_risk_below=body.turn_risk_below,
        is_locked=body.is_locked,
        known_miss=body.known_miss,
    )


def _demands(expect: Expectation) -> tuple[object, ...]:
    return (
        expect.action,
        expect.min_action,
        expect.max_action,
        expect.min_mode,
        expect.max_mode,
        expect.turn_risk_above,
        expect.turn_risk_below,
        expect.is_locked,
    )


def _named(wanted: object) -> str:
    return wanted.name if isinstance(wanted, Mode) else str(wanted)
