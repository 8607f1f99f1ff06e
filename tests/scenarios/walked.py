"""Each bundled conversation judged once with the embedded model, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from promptguard.config import ControllerConfig
from promptguard.scenarios import Scenario, ScenarioTurn, Setting, shipped_scenarios
from promptguard.state import SessionState
from promptguard.turns.judge import TurnJudge
from promptguard.turns.verdict import TurnInput, TurnVerdict
from promptguard.turns.walk import Step, walk

Walked = tuple[tuple[TurnVerdict, SessionState], ...]
BY_ID = {scenario.id: scenario for scenario in shipped_scenarios()}


@cache
def walked(scenario_id: str) -> Walked:
    """Return the verdicts on a scenario, and the state after each."""
    scenario = BY_ID[scenario_id]
    return walk_turns(scenario.turns, scenario)


def walk_turns(turns: Sequence[ScenarioTurn], scenario: Scenario) -> Walked:
    """Judge `turns` under the settings of `scenario`."""
    judge = _judge(tuple(scenario.config.items()))
    steps = [
        Step(turn=TurnInput(text=turn.user, tool_contents=turn.tools), reply=turn.reply)
        for turn in turns
    ]
    return tuple(walk(judge, steps))


@cache
def _judge(settings: tuple[tuple[str, Setting], ...]) -> TurnJudge:
    return TurnJudge.open(ControllerConfig(**dict(settings)))
