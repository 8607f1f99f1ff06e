"""Tests of the lanes: who waits for whom, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from promptguard.computations import checkpoint, checkpoints
from promptguard.service.errors import ApiError
from promptguard.service.lanes import (
    PATIENCE_S,
    Abandoned,
    Call,
    Lane,
    LaneExecutor,
    LaneLimits,
    under_way,
)


class Gate:
    """Work that waits until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self._open.wait(20)

    def open(self) -> None:
        self._open.set()


def lanes(threads: int = 1, waiting: int = 100, per_caller: int = 100) -> LaneExecutor:
    limits = LaneLimits(threads=threads, waiting=waiting, waiting_per_caller=per_caller)
    return LaneExecutor(dict.fromkeys(Lane, limits), sleep=lambda _: None)


@pytest.fixture
def executor() -> Iterator[LaneExecutor]:
    made = lanes()
    yield made
    made.shutdown()


def test_callers_are_served_in_rotation(executor: LaneExecutor) -> None:
    """A caller with one computation does not wait behind all of another's."""
    gate, order = Gate(), []
    with under_way(Call(owner="many")):
        executor.submit(gate)
        gate.begun.wait(20)
        jobs = [executor.submit(order.append, f"many {at}") for at in range(3)]
    with under_way(Call(owner="one")):
        jobs.append(executor.submit(order.append, "one"))
    gate.open()
    for job in jobs:
        job.result(20)
    assert order.index("one") <= 1


def test_a_full_lane_of_heavy_calls_leaves_short_turns_alone(executor: LaneExecutor) -> None:
    """Heavy computations have their own threads."""
    gate = Gate()
    with under_way(Call(owner="a", lane=Lane.HEAVY)):
        executor.submit(gate)
        gate.begun.wait(20)
        executor.submit(gate)
    with under_way(Call(owner="b")):
        assert executor.submit(lambda: "judged").result(20) == "judged"
    gate.open()


def test_a_full_queue_is_refused_with_a_time_to_come_back() -> None:
    """Neither one caller nor all together may fill memory with waiting work."""
    executor, gate = lanes(waiting=3, per_caller=2), Gate()
    with under_way(Call(owner="a")):
        executor.submit(gate)
        gate.begun.wait(20)
        executor.submit(gate)
        executor.submit(gate)
        with pytest.raises(ApiError) as refused:
            executor.submit(gate)
    assert refused.value.status_code == 503
    assert (refused.value.headers or {})["retry-after"]
    with under_way(Call(owner="b")):
        executor.submit(gate)
        with pytest.raises(ApiError):
            executor.submit(gate)
    gate.open()
    executor.shutdown()


def test_who_left_the_queue_takes_no_place_in_it() -> None:
    """A caller that gave up twice may ask again at once."""
    executor = lanes(per_caller=1)
    gate = Gate()
    running = executor.submit(gate)
    gate.begun.wait(20)
    for _ in range(3):
        waiting = executor.submit(gate)
        with pytest.raises(ApiError):
            executor.submit(gate)
        waiting.cancel()
    last = executor.submit(lambda: "served")
    gate.open()
    assert last.result(20) == "served"
    running.result(20)
    executor.shutdown()


def test_work_whose_caller_left_ends_at_its_next_checkpoint(executor: LaneExecutor) -> None:
    """A replay of thousands of turns does not go on for nobody."""
    call = Call(owner="a", lane=Lane.HEAVY)
    steps = []

    def replay() -> None:
        for step in range(1000):
            checkpoint()
            steps.append(step)
            call.is_over = step == 2

    def checked() -> None:
        with checkpoints(lambda: executor.check(call)):
            replay()

    with under_way(call), pytest.raises(Abandoned):
        executor.submit(checked).result(20)
    assert steps == [0, 1, 2]


async def test_work_that_waits_is_taken_back_when_its_caller_is_cancelled(
    executor: LaneExecutor,
) -> None:
    """What has not begun never begins."""
    gate, ran = Gate(), []
    loop = asyncio.get_running_loop()
    with under_way(Call(owner="a")):
        first = loop.run_in_executor(executor, gate)
        waiting = asyncio.ensure_future(loop.run_in_executor(executor, ran.append, 1))
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)  # the loop passes the cancellation on to the executor
    gate.open()
    await first
    executor.shutdown()
    assert ran == []


def test_heavy_work_lets_short_turns_go_first() -> None:
    """Threads share one interpreter, so a heavy computation pauses while turns are judged."""
    pauses: list[float] = []
    limits = LaneLimits(threads=1, waiting=9, waiting_per_caller=9)
    executor = LaneExecutor(dict.fromkeys(Lane, limits), sleep=pauses.append)
    heavy, gate = Call(lane=Lane.HEAVY), Gate()
    executor.check(heavy)
    assert pauses == []
    executor.submit(gate)
    gate.begun.wait(20)
    executor.check(heavy)
    assert sum(pauses) == pytest.approx(PATIENCE_S[Lane.HEAVY], abs=0.02)
    pauses.clear()
    executor.check(Call())
    assert pauses == []
    gate.open()
    executor.shutdown()
