"""The bundled conversations: their messages, and how each turn must be judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.errors import DataError

ModeName = Literal["SAFE", "CAUTIOUS", "ELEVATED", "SUSPECT", "CRITICAL", "UNSAFE"]
Kind = Literal["attack", "ordinary"]
Setting = str | bool | float
_Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold once a turn is judged; None asks for nothing.

    `passes` says whether the turn reaches the model at all.
    """

    min_mode: ModeName | None = None
    max_mode: ModeName | None = None
    passes: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTurn:
    """One user message, the tool results that came with it, and the reply it got."""

    user: str
    reply: str | None = None
    tools: tuple[str, ...] = ()
    expect: Expectation = field(default_factory=Expectation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation. `config` are settings of the controller that differ from the defaults."""

    id: str
    title: str
    lang: str
    kind: Kind
    description: str
    turns: tuple[ScenarioTurn, ...]
    config: Mapping[str, Setting] = field(default_factory=dict)


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
    return Scenario(
        id=body.id,
        title=body.title,
        lang=body.lang,
        kind=body.kind,
        description=body.description,
        turns=tuple(turn for item in body.turns for turn in _unrolled(item)),
        config=body.config,
    )


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _ExpectFile(_Part):
    min_mode: ModeName | None = None
    max_mode: ModeName | None = None
    passes: bool | None = None


class _TurnFile(_Part):
    user: _Text
    reply: _Text | None = None
    tools: tuple[_Text, ...] = ()
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
    config: dict[str, Setting] = {}


def _unrolled(item: _BlockFile | _TurnFile) -> Iterator[ScenarioTurn]:
    if isinstance(item, _TurnFile):
        yield _turn(item, None)
        return
    for _ in range(item.repeat):
        for turn in item.turns:
            yield _turn(turn, item.expect)


def _turn(item: _TurnFile, default: _ExpectFile | None) -> ScenarioTurn:
    expect = item.expect or default or _ExpectFile()
    return ScenarioTurn(
        user=item.user,
        reply=item.reply,
        tools=item.tools,
        expect=Expectation(
            min_mode=expect.min_mode, max_mode=expect.max_mode, passes=expect.passes
        ),
    )
