"""What a filter says of itself, and what an overview adds up to."""

from __future__ import annotations

from typing import Any

import pytest

from promptguard.queries import (
    Bucket,
    Overview,
    OverviewQuery,
    SessionRow,
    TurnFilter,
)
from promptguard.state import SessionState
from promptguard.verdict import Action


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
