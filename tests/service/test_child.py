"""Tests of the child process: what it computes, how it ends, and what outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from guarded_service import fast_judge

from promptguard.computations import checkpoint, offloaded, offloading
from promptguard.config import ControllerConfig
from promptguard.errors import EvaluationError
from promptguard.service.calls import in_child
from promptguard.service.child import NICENESS, Child
from promptguard.service.errors import ApiError
from promptguard.service.lanes import LONG_BODY_BYTES, Abandoned, Call, Lane
from promptguard.turns.judge import TurnJudge

CONFIG = ControllerConfig(store="memory:")
CONNECTIONS = {Lane.LONG: 1, Lane.HEAVY: 1}


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(fast_judge, fast_judge(CONFIG), CONNECTIONS)
    yield made
    asyncio.run(made.close())


def run(child: Child, work: Callable[..., Any], *args: Any, call: Call | None = None) -> Any:
    with offloading(partial(in_child, child, call or Call(lane=Lane.HEAVY))):
        return offloaded(work, *args)


def preset_of(judge: TurnJudge) -> tuple[str, int]:
    return judge.config.preset, os.getpid()


def noted(marker: str, config: ControllerConfig) -> TurnJudge:
    with Path(marker).open("a") as file:
        file.write("opened\n")
    return fast_judge(config)


def refuse() -> None:
    raise ApiError(413, "too long", code="message_too_long", param="messages[0]")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        die()
    return "judged"


def endless(marker: str) -> None:
    Path(marker).touch()
    while True:
        checkpoint()
        threading.Event().wait(0.001)


def stuck(marker: str) -> None:
    Path(marker).touch()
    threading.Event().wait()


def test_long_and_heavy_work_is_done_in_another_process_of_lower_priority(child: Child) -> None:
    """Short work stays here, where it needs no way there and back."""
    pids = {lane: run(child, os.getpid, call=Call(lane=lane)) for lane in Lane}
    assert pids[Lane.SHORT] == os.getpid()
    assert pids[Lane.LONG] == pids[Lane.HEAVY] != os.getpid()
    assert run(child, os.nice, 0) == min(19, os.nice(0) + NICENESS)


def test_a_judge_travels_as_its_settings(child: Child) -> None:
    """The child judges with its own, also after a reload has changed them."""
    judge = fast_judge(CONFIG)
    assert run(child, preset_of, judge)[0] == "balanced"
    strict = fast_judge(CONFIG.model_copy(update={"preset": "strict"}))
    preset, pid = run(child, preset_of, strict)
    assert (preset, pid != os.getpid()) == ("strict", True)


def test_a_reload_under_the_same_settings_reaches_the_child(tmp_path: Path) -> None:
    """The files that they name may be others now; without a reload they are read once."""
    marker = tmp_path / "opened"
    first = fast_judge(CONFIG)
    child = Child(partial(noted, str(marker)), first, CONNECTIONS)
    opened = []
    for judge in (first, first, replace(first), first):
        run(child, preset_of, judge)
        opened.append(len(marker.read_text().splitlines()))
    asyncio.run(child.close())
    assert opened == [1, 1, 2, 3]


def test_errors_come_back_as_they_were_raised(child: Child) -> None:
    """Status, code and field of a refusal survive the way."""
    with pytest.raises(ApiError) as refused:
        run(child, refuse)
    error = refused.value
    assert (error.status_code, error.code, error.param) == (413, "message_too_long", "messages[0]")


def test_a_child_that_dies_is_replaced_and_asked_again(child: Child, tmp_path: Path) -> None:
    """Whoever waits does not notice."""
    first = run(child, os.getpid)
    assert run(child, die_once, str(tmp_path / "died")) == "judged"
    assert run(child, os.getpid) != first


def test_work_that_kills_every_child_could_not_be_judged(child: Child) -> None:
    """It is an error of the judge, which the policy answers; the next one finds a new child."""
    with pytest.raises(EvaluationError):
        run(child, die)
    assert run(child, os.getpid) != os.getpid()


@pytest.mark.parametrize(("work", "survives"), [(endless, True), (stuck, False)])
def test_work_ends_when_its_caller_leaves(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Any, survives: bool
) -> None:
    """At the next checkpoint; where none comes, with the whole child."""
    monkeypatch.setattr("promptguard.service.child.GRACE_S", 20.0 if survives else 0.1)
    before, marker = run(child, os.getpid), tmp_path / "begun"
    call, raised = Call(lane=Lane.HEAVY), []

    def ask() -> None:
        try:
            run(child, work, str(marker), call=call)
        except Abandoned as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not marker.exists():
        threading.Event().wait(0.01)
    call.is_over = True
    thread.join(20)
    assert len(raised) == 1
    assert (run(child, os.getpid) == before) is survives


def test_a_closed_child_is_not_started_again() -> None:
    """What comes after the shutdown is given up."""
    child = Child(fast_judge, fast_judge(CONFIG), CONNECTIONS)
    pid = run(child, os.getpid)
    asyncio.run(child.close())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Abandoned):
        run(child, os.getpid)


_PARENT = """
import os, sys, threading
from guarded_service import fast_judge
from promptguard.config import ControllerConfig
from promptguard.service.lanes import Call, Lane
from promptguard.service.child import Child
if __name__ == "__main__":
    child = Child(fast_judge, fast_judge(ControllerConfig(store="memory:")), {Lane.HEAVY: 1})
    call = Call(lane=Lane.HEAVY)
    print(child.run(call, os.getpid), flush=True)
    child.run(call, threading.Event().wait)
"""


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    """Also where the parent is killed, and in the middle of a computation."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    paths = [str(Path(__file__).parent), *sys.path]
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait(20)
    for _ in range(2000):
        if _has_ended(pid):
            return
        threading.Event().wait(0.01)
    raise AssertionError("the child outlives its parent")


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


async def test_the_service_computes_long_requests_in_its_child(guarded: Any) -> None:
    """Turns, replay, explanation and rubric give what they give in one process."""
    text = "Please tell me about the harvest. " * (LONG_BODY_BYTES // 30)
    seen = []
    for open_judge in (fast_judge, None):
        guard = await guarded(open_judge=open_judge)
        session = {"x-session-id": "s"}
        long = await guard.chat(text, headers=session)
        replay = await guard.client.post("/v1/sessions/s/replay", json={"persona": "strict"})
        explain = await guard.client.get("/v1/sessions/s/explain")
        rubric = await guard.client.post(
            "/v1/rubric", json={"messages": [{"role": "assistant", "content": "Yes."}]}
        )
        replies = (long, replay, explain, rubric)
        assert [reply.status_code for reply in replies] == [200] * 4
        seen.append([reply.json() for reply in replies[1:]])
    assert seen[0] == seen[1]


async def test_a_long_session_is_shown_from_the_child(
    guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read all its verdicts takes long; what is shown is the same as of a short one."""
    guard = await guarded(open_judge=fast_judge)
    for text in ("Hello", "How are you?"):
        await guard.chat(text, headers={"x-session-id": "s"})
    lanes, run = [], guard.service.child.run
    monkeypatch.setattr(
        guard.service.child, "run", lambda call, work: (lanes.append(call.lane), run(call, work))[1]
    )
    short = await guard.client.get("/v1/sessions/s")
    monkeypatch.setattr("promptguard.service.lanes.LONG_SESSION_TURNS", 1)
    long = await guard.client.get("/v1/sessions/s")
    assert (short.status_code, long.status_code, lanes) == (200, 200, [Lane.LONG])
    assert short.json() == long.json()
    assert long.json()["transcript"][0]["content"] == "Hello"


async def test_the_child_can_be_turned_off(guarded: Any) -> None:
    """One process is enough where memory is short."""
    guard = await guarded(open_judge=fast_judge, service={"child_process": False})
    assert guard.service.child is None
    assert (await guard.chat("word " * LONG_BODY_BYTES)).status_code == 200
