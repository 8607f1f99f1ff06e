"""The bundled conversations, judged once so that a new store has something to look at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import count

from promptguard.controller import Controller
from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionQuery
from promptguard.scenarios import Scenario, shipped_scenarios
from promptguard.service.logs import log
from promptguard.turns.walk import SECONDS_BETWEEN_TURNS

PREFIX = "demo:"
# The long ones test forgetting; nobody would read them in a demonstration.
MAX_TURNS = 30


async def load_demo(
    controller: Controller,
    scenarios: Callable[[], Iterable[Scenario]] = shipped_scenarios,
    *,
    clock: Callable[[], float],
) -> int:
    """Judge and store the scenarios where the store is empty; return how many were.

    A demonstration that fails is logged and keeps nobody from working.
    """
    loaded = 0
    try:
        if await controller.store.sessions(SessionQuery(tenant=None, limit=1)):
            return 0
        for scenario in scenarios():
            if len(scenario.turns) <= MAX_TURNS:
                await _play(controller, scenario, clock())
                loaded += 1
    except (PromptGuardError, OSError) as error:
        log(logging.WARNING, "demo not loaded", error=error)
    if loaded:
        log(logging.INFO, "demo loaded", sessions=loaded)
    return loaded


async def _play(controller: Controller, scenario: Scenario, now: float) -> None:
    """Judge one conversation as if it had just ended."""
    start = now - SECONDS_BETWEEN_TURNS * len(scenario.turns)
    for turn, said in zip(scenario.turns, count(start, SECONDS_BETWEEN_TURNS), strict=False):
        result = await controller.judge_turn(
            PREFIX + scenario.id, turn.user, tool_contents=turn.tools, now=said
        )
        if turn.reply is not None and not result.is_blocked:
            await controller.record_reply(result, turn.reply, now=said)
