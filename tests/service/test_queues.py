"""Tests of the order within a session and of the limit per key."""

from __future__ import annotations

import asyncio

import pytest

from promptguard.protocols import SessionKey
from promptguard.service.auth import CallerSlots
from promptguard.service.errors import ApiError
from promptguard.service.lanes import Call, JudgingSlots, Lane, under_way
from promptguard.service.sessions import SessionQueues

KEY = SessionKey(session_id="s")


async def test_turns_of_one_session_go_one_after_the_other() -> None:
    """No two are under way at once, and their order is that of their coming."""
    queues, under_way, order = SessionQueues(), 0, []

    async def turn(number: int) -> None:
        nonlocal under_way
        async with queues.turn_of(KEY):
            under_way += 1
            assert under_way == 1
            await asyncio.sleep(0)
            order.append(number)
            under_way -= 1

    await asyncio.gather(*(turn(number) for number in range(50)))
    assert order == list(range(50))
    assert len(queues) == 0


async def test_sessions_do_not_wait_for_each_other() -> None:
    """A held session holds no other."""
    queues = SessionQueues()
    other = SessionKey(session_id="other")
    async with queues.turn_of(KEY), asyncio.timeout(5), queues.turn_of(other):
        assert len(queues) == 2


async def test_too_many_waiting_turns_are_refused_and_leave_nothing_behind() -> None:
    """The queue of one session is bounded."""
    queues = SessionQueues(limit=2)
    async with queues.turn_of(KEY):
        waiting = asyncio.ensure_future(queues.turn_of(KEY).__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            async with queues.turn_of(KEY):
                pass
        assert refused.value.status_code == 503
        waiting.cancel()
        await asyncio.wait((waiting,))
    assert len(queues) == 0


def test_a_key_has_so_many_requests_at_once_and_no_more() -> None:
    """The limit frees with the requests, also with those that fail."""
    slots = CallerSlots()
    with slots.slot("a", 1, 9):
        with pytest.raises(ApiError) as refused, slots.slot("a", 1, 9):
            pass
        assert refused.value.status_code == 429
        with slots.slot("b", 1, 9):
            pass
    with pytest.raises(KeyError), slots.slot("a", 1, 9):
        raise KeyError
    with slots.slot("a", 1, 9):
        pass


def test_all_callers_together_have_so_many_requests_at_once() -> None:
    """A caller below its own limit is refused too, until somebody's request ends."""
    slots = CallerSlots()
    with slots.slot("a", 9, 2), slots.slot("b", 9, 2):
        with pytest.raises(ApiError, match="service") as refused, slots.slot("c", 9, 2):
            pass
        assert refused.value.status_code == 503
        assert refused.value.headers == {"retry-after": "1"}
    with slots.slot("c", 9, 2):
        pass


async def test_a_caller_with_one_turn_waits_for_one_of_another_at_most() -> None:
    """Slots go to the callers in rotation, whoever has most waiting."""
    slots, order = JudgingSlots({Lane.SHORT: 1}), []

    async def turn(owner: str) -> None:
        with under_way(Call(owner=owner)):
            async with slots.slot():
                order.append(owner)
                await asyncio.sleep(0)

    await asyncio.gather(*(turn("many") for _ in range(20)), turn("one"), turn("other"))
    assert set(order[:3]) == {"many", "one", "other"}
    assert len(order) == 22


async def test_a_cancelled_turn_gives_its_slot_on() -> None:
    """Before and after it was given one."""
    slots = JudgingSlots({Lane.SHORT: 1})
    async with slots.slot():
        waiting = [asyncio.ensure_future(slots.slot().__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(5), slots.slot():
        pass
