"""Filters fit the turns they ask for, and no others; the boundary seconds belong to one side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stored_values import make_stored_turn

from promptguard.queries import (
    Bucket,
    LabelFilter,
    Overview,
    OverviewQuery,
    SessionRow,
    TurnFilter,
    TurnQuery,
    fits_label,
)
from promptguard.state import SessionState
from promptguard.verdict import Action

TURN = make_stored_turn(tags=("LLM01", "AML.T0054"), language="fr", key="app")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"actions": (Action.BLOCK, Action.STEER)},
        {"tag": "AML.T0054"},
        {"signal": "semantic", "reason": "harmful"},
        {"language": "fr", "key": "app"},
        {"is_demo": False},
        {"since": 1000},
        {"until": 1001},
        {"since": 1000, "until": 1001},
    ],
)
def test_a_turn_fits_what_it_has(asked: dict[str, Any]) -> None:
    """The first second of a stretch is in it."""
    assert TurnFilter(**asked).fits(TURN)


@pytest.mark.parametrize(
    "asked",
    [
        {"actions": (Action.ALLOW, Action.BLOCK)},
        {"tag": "LLM0"},
        {"tag": "llm01"},
        {"signal": "semanti"},
        {"reason": "harm"},
        {"language": "en"},
        {"key": "ap"},
        {"is_demo": True},
        {"since": 1001},
        {"until": 1000},
        {"actions": (Action.STEER,), "language": "en"},
    ],
)
def test_a_turn_does_not_fit_what_it_lacks(asked: dict[str, Any]) -> None:
    """Names are compared whole; the last second of a stretch is not in it."""
    assert not TurnFilter(**asked).fits(TURN)


@pytest.mark.parametrize("asked", [{"tag": "LLM01"}, {"signal": "semantic"}, {"reason": "harmful"}])
def test_what_is_asked_of_flagged_turns_does_not_fit_a_harmless_one(asked: dict[str, Any]) -> None:
    """A harmless turn has a strongest signal too, and it means nothing."""
    for action in (Action.ALLOW, Action.ANNOTATE):
        assert not TurnFilter(**asked).fits(replace(TURN, action=action))


@pytest.mark.parametrize(
    ("actions", "is_flagged_only"),
    [
        ((), False),
        ((Action.BLOCK,), True),
        ((Action.STEER, Action.REVIEW, Action.STRIP), True),
        ((Action.BLOCK, Action.ANNOTATE), False),
        ((Action.ALLOW,), False),
    ],
)
def test_a_filter_knows_whether_the_index_of_flagged_turns_will_do(
    actions: tuple[Action, ...], is_flagged_only: bool
) -> None:
    """The stores have an index of those alone; one mild action needs all turns."""
    assert TurnFilter(actions=actions).asks_flagged is is_flagged_only


@pytest.mark.parametrize(
    ("asked", "restricts"),
    [
        ({}, False),
        ({"key": "app", "is_demo": True}, False),
        ({"actions": (Action.ALLOW,)}, True),
        ({"tag": "x"}, True),
        ({"signal": "x"}, True),
        ({"reason": "x"}, True),
        ({"language": "x"}, True),
        ({"since": 0}, True),
        ({"until": 0}, True),
    ],
)
def test_key_and_demo_are_told_by_the_session_alone(asked: dict[str, Any], restricts: bool) -> None:
    """All else needs a look at its turns; second 0 restricts too."""
    assert TurnFilter(**asked).restricts_turns is restricts


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        (LabelFilter.ANY, ["", "attack", "false_alarm"]),
        (LabelFilter.NONE, [""]),
        (LabelFilter.ATTACK, ["attack"]),
        (LabelFilter.FALSE_ALARM, ["false_alarm"]),
    ],
)
def test_no_label_is_a_label_of_its_own(wanted: LabelFilter, fitting: list[str]) -> None:
    """Unlabelled turns can be asked for, which is what reviewers do."""
    known = ["", "attack", "false_alarm"]
    assert [label for label in known if fits_label(wanted, label)] == fitting


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({}, True),
        ({"tenant": None}, True),
        ({"tenant": "other"}, False),
        ({"label": LabelFilter.NONE}, True),
        ({"label": LabelFilter.ATTACK}, False),
        ({"min_risk": 0.99}, True),  # it was interfered with
        ({"turns": TurnFilter(language="en")}, False),
    ],
)
def test_a_list_of_turns_keeps_to_its_query(asked: dict[str, Any], fits: bool) -> None:
    """Tenant, label and filter all have to fit."""
    assert TurnQuery(**asked).fits(TURN) is fits


@pytest.mark.parametrize(("risk", "fits"), [(0.3, True), (0.2999, False)])
def test_a_harmless_turn_is_listed_from_the_risk_asked_for(risk: float, fits: bool) -> None:
    """The bound itself is risky enough."""
    harmless = replace(TURN, action=Action.ALLOW, turn_risk=risk)
    assert TurnQuery(min_risk=0.3).fits(harmless) is fits


@pytest.mark.parametrize(
    ("since", "until", "buckets"),
    [(0, 60, 1), (0, 61, 2), (0, 59, 1), (0, 0, 0), (100, 40, 0), (30, 150, 2)],
)
def test_an_overview_has_as_many_stretches_as_it_takes(
    since: int, until: int, buckets: int
) -> None:
    """A begun stretch counts; an empty or reversed span has none."""
    query = OverviewQuery(since=since, until=until, bucket_s=60)
    assert query.buckets == buckets
    assert (query.turns.since, query.turns.until) == (since, until)


def test_the_total_is_the_sum_of_the_stretches() -> None:
    """It begins where the first does; without any it is nothing."""
    buckets = (
        Bucket(start=60, turns=3, steered=1, blocked=1),
        Bucket(start=120, turns=4, stripped=2),
    )
    assert Overview(buckets=buckets).total == Bucket(
        start=60, turns=7, steered=1, stripped=2, blocked=1
    )
    assert Overview(buckets=()).total == Bucket(start=0)


@pytest.mark.parametrize(
    ("session_id", "is_demo"), [("demo:tour", True), ("Demo:tour", False), ("app:demo:", False)]
)
def test_bundled_conversations_are_told_by_their_id(session_id: str, is_demo: bool) -> None:
    """Only by how it begins."""
    assert SessionRow(state=SessionState(session_id=session_id)).is_demo is is_demo
