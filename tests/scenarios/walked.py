"""Each bundled conversation judged once with the embedded model, for all tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

from promptguard.config import ControllerConfig, config_hash
from promptguard.controller import Controller
from promptguard.protocols import SessionLabel
from promptguard.scenarios import Scenario, ScenarioTurn, shipped_scenarios
from promptguard.state import SessionState
from promptguard.stored_sessions import FALSE_ALARM
from promptguard.stores.memory import MemoryStore
from promptguard.turns.input import Content, TurnInput
from promptguard.turns.judge import TurnJudge
from promptguard.verdict import Verdict

Walked = tuple[tuple[Verdict, SessionState], ...]
BY_ID = {scenario.id: scenario for scenario in shipped_scenarios()}
_SESSION = "walked"
_JUDGES: dict[str, TurnJudge] = {}


@cache
def walked(scenario_id: str) -> Walked:
    """Return the verdicts on a scenario, and the state after each."""
    scenario = BY_ID[scenario_id]
    return walk_turns(scenario.turns, scenario)


def walk_turns(turns: Sequence[ScenarioTurn], scenario: Scenario) -> Walked:
    """Judge `turns` under the settings of `scenario`, the way a service would."""
    return asyncio.run(_walk(turns, scenario))


async def _walk(turns: Sequence[ScenarioTurn], scenario: Scenario) -> Walked:
    config = scenario.config
    controller = Controller(config, store=MemoryStore(), judge=_judge(config))
    now = 0.0
    judged = []
    for turn in turns:
        now += turn.pause_s
        await _intervene(controller, turn, now)
        result = await controller.judge_turn(_SESSION, _input(turn, scenario), now=now)
        if turn.reply is not None and not result.is_blocked:
            result = await controller.record_reply(result, turn.reply, now=now)
        judged.append((result.verdict, result.state))
    return tuple(judged)


async def _intervene(controller: Controller, turn: ScenarioTurn, now: float) -> None:
    if turn.before == "release":
        await controller.release(_SESSION)
    elif turn.before == FALSE_ALARM:
        label = SessionLabel(verdict=FALSE_ALARM, author="operator", timestamp=now)
        await controller.put_label(_SESSION, label)


def _input(turn: ScenarioTurn, scenario: Scenario) -> TurnInput:
    contents = tuple(Content(text=text) for text in turn.tools)
    return TurnInput(text=turn.user, contents=contents, system=scenario.system)


def _judge(config: ControllerConfig) -> TurnJudge:
    key = config_hash(config)
    if key not in _JUDGES:
        _JUDGES[key] = TurnJudge.open(config)
    return _JUDGES[key]
