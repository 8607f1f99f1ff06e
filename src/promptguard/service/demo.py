"""The bundled conversations, loaded once so that a new store has something to look at."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files

from promptguard.controller import Controller
from promptguard.conversation import Message, messages_from
from promptguard.errors import DataError, InputError, PromptGuardError
from promptguard.protocols import SessionQuery
from promptguard.service.logs import log
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS, steps_of

PREFIX = "demo:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One bundled conversation."""

    name: str
    messages: tuple[Message, ...]


def bundled_scenarios() -> Iterator[Scenario]:
    """Yield the bundled conversations in order of their names; none where there are none."""
    folder = files("promptguard").joinpath("data/scenarios")
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".json"):
            yield from read_scenarios(file.read_text(encoding="utf-8"), file.name)


def read_scenarios(text: str, where: str) -> Iterator[Scenario]:
    """Read a file: one object with `messages` (and a `name`), or a list of them."""
    try:
        body = json.loads(text)
        items = body if isinstance(body, list) else [body]
        for at, item in enumerate(items):
            stem = where.removesuffix(".json")
            name = item.get("name") or (stem if len(items) == 1 else f"{stem}-{at + 1}")
            yield Scenario(name=str(name), messages=messages_from(item["messages"]))
    except (ValueError, KeyError, AttributeError, TypeError, InputError):
        raise DataError(f"The scenario file {where} is broken; reinstall promptguard.") from None


async def load_demo(
    controller: Controller, scenarios: Iterator[Scenario], *, clock: Callable[[], float]
) -> int:
    """Judge and store the scenarios where the store is empty; return how many were.

    A demonstration that fails is logged and keeps nobody from working.
    """
    count = 0
    try:
        if await controller.store.sessions(SessionQuery(tenant=None, limit=1)):
            return 0
        for scenario in scenarios:
            await _play(controller, scenario, clock())
            count += 1
    except PromptGuardError as error:
        log(logging.WARNING, "demo not loaded", error=error)
    if count:
        log(logging.INFO, "demo loaded", sessions=count)
    return count


async def _play(controller: Controller, scenario: Scenario, now: float) -> None:
    steps = steps_of(scenario.messages)
    for at, step in enumerate(steps):
        said = now - SECONDS_BETWEEN_TURNS * (len(steps) - at)
        result = await controller.judge_turn(
            PREFIX + scenario.name, step.turn.text, tool_contents=step.turn.tool_contents, now=said
        )
        if step.reply is not None and not result.is_blocked:
            await controller.record_reply(result, step.reply, now=said)
