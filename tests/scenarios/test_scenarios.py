"""The bundled conversations under the shipped model and weights."""

from __future__ import annotations

import random

import pytest
from walked import BY_ID, walk_turns, walked

from promptguard.risk.ledger import total
from promptguard.scenarios import ScenarioTurn, shipped_scenarios
from promptguard.state import Mode
from promptguard.turns.explain import PASSING
from promptguard.turns.verdict import TurnVerdict

_IDS = [scenario.id for scenario in shipped_scenarios()]


@pytest.mark.parametrize("scenario_id", _IDS)
def test_every_turn_is_judged_as_the_scenario_demands(scenario_id: str) -> None:
    """Mode and passage of each turn are within what its scenario expects."""
    turns = BY_ID[scenario_id].turns
    pairs = zip(turns, walked(scenario_id), strict=True)
    faults = [fault for turn, (verdict, _) in pairs if (fault := _fault(turn, verdict))]
    assert not faults, "\n".join(faults)


def test_twenty_greetings_leave_four_fifths_of_the_evidence() -> None:
    """Small talk after an attack does not wash the evidence away."""
    states = [state for _, state in walked("decay-escape")]
    assert total(states[24].ledger) >= 0.8 * total(states[4].ledger)


@pytest.mark.parametrize("scenario_id", ["crescendo-seven-steps", "phishing-crescendo"])
def test_order_matters(scenario_id: str) -> None:
    """The same messages in another order do not score the same."""
    scenario = BY_ID[scenario_id]
    shuffled = list(scenario.turns)
    random.Random(7).shuffle(shuffled)
    assert shuffled != list(scenario.turns)
    in_order = walked(scenario_id)[-1][1]
    out_of_order = walk_turns(shuffled, scenario)[-1][1]
    assert abs(total(in_order.ledger) - total(out_of_order.ledger)) > 0.05


def test_a_follow_up_is_judged_by_what_it_continues() -> None:
    """The same harmless words weigh more after an escalation than by themselves."""
    scenario = BY_ID["next-step-without-a-risky-word"]
    follow_up = scenario.turns[3]
    alone = walk_turns([follow_up], scenario)[0][0]
    assert alone.mode is Mode.SAFE
    assert walked(scenario.id)[3][0].risk > alone.risk + 0.3


def _fault(turn: ScenarioTurn, verdict: TurnVerdict) -> str:
    expect = turn.expect
    wanted = []
    if expect.min_mode is not None and verdict.mode < Mode[expect.min_mode]:
        wanted.append(f"at least {expect.min_mode}")
    if expect.max_mode is not None and verdict.mode > Mode[expect.max_mode]:
        wanted.append(f"at most {expect.max_mode}")
    if expect.passes is not None and (verdict.action in PASSING) is not expect.passes:
        wanted.append("passing" if expect.passes else "blocked")
    if not wanted:
        return ""
    found = f"{verdict.mode.name}, {verdict.action.value}, risk {verdict.risk:.3f}"
    return f"turn {verdict.turn}: {found}; expected {' and '.join(wanted)}"
