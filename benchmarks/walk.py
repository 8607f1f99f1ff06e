"""How far a reader must walk: `python -m benchmarks.walk [--list]`.

Counts, for the second turn of a conversation through the gateway, one scanned record and one
evaluation, the files of src/promptguard that run, the functions entered, and the hops: calls from
one file into another. `--list` names the files in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import httpx

import promptguard
from benchmarks.servers import running_upstream
from promptguard.batch.verdict_lines import line_of, open_judge
from promptguard.config import ControllerConfig, ServiceConfig, Settings
from promptguard.conversation import Message, Role
from promptguard.evaluation import PromptGuard
from promptguard.records import Record
from promptguard.service.app import Service, open_parts

SOURCE = str(Path(promptguard.__file__).parent) + "/"
TURNS = ("What is a good soup for a cold evening?", "And how long must the leeks cook?")


@dataclass(slots=True)
class Walk:
    """What ran while it was recorded; frames are kept, so that a resumed one is counted once."""

    files: dict[str, None] = field(default_factory=dict)
    functions: set[CodeType] = field(default_factory=set)
    calls: int = 0
    hops: int = 0
    _frames: dict[int, FrameType] = field(default_factory=dict)

    def enter(self, frame: FrameType) -> None:
        """Count one call of a function of ours."""
        # Comprehensions and lambdas belong to the function that a reader sees.
        if id(frame) in self._frames or frame.f_code.co_name.startswith("<"):
            return
        self._frames[id(frame)] = frame
        here = frame.f_code.co_filename
        self.files[here.removeprefix(SOURCE)] = None
        self.functions.add(frame.f_code)
        self.calls += 1
        self.hops += _caller_file(frame) != here


class Recorder:
    """Records walks in every thread begun after it was made."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        self._lock = threading.Lock()
        # Holds for threads begun later, the next line for this one.
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    @contextmanager
    def walk(self) -> Iterator[Walk]:
        """Record what runs inside the block."""
        walk = self._walk = Walk()
        try:
            yield walk
        finally:
            self._walk = None

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        walk = self._walk
        if walk is not None and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            with self._lock:
                walk.enter(frame)


def main() -> None:
    """Walk all three ways and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="Name the files.")
    options = parser.parse_args()
    recorder = Recorder()
    ways: tuple[tuple[str, Callable[[Recorder], Walk]], ...] = (
        ("gateway, second turn", gateway_turn),
        ("one scanned record", scanned_record),
        ("one evaluation", evaluation),
    )
    print(f"{'':24} {'files':>6} {'functions':>10} {'calls':>7} {'hops':>6}")
    for name, way in ways:
        walk = way(recorder)
        print(
            f"{name:24} {len(walk.files):6} {len(walk.functions):10} {walk.calls:7} {walk.hops:6}"
        )
        for file in walk.files if options.list else ():
            print(f"    {file}")


def gateway_turn(recorder: Recorder) -> Walk:
    """Walk the second turn of a conversation through the application, before a stub model."""
    with running_upstream() as upstream:
        settings = Settings(
            conversation=ControllerConfig(store="memory:"),
            service=ServiceConfig(upstream=f"{upstream}/v1", demo=False, dashboard=False),
        )
        service = Service(open_parts(settings, lambda: settings))
        return asyncio.run(_second_turn(recorder, service))


async def _second_turn(recorder: Recorder, service: Service) -> Walk:
    async with (
        service.app.router.lifespan_context(service.app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(service.app), base_url="http://127.0.0.1"
        ) as client,
    ):
        said = [{"role": "user", "content": TURNS[0]}]
        reply = await _ask(client, said)
        said += [reply, {"role": "user", "content": TURNS[1]}]
        with recorder.walk() as walk:
            await _ask(client, said)
        return walk


async def _ask(client: httpx.AsyncClient, said: list[dict[str, str]]) -> dict[str, str]:
    answer = await client.post("/v1/chat/completions", json={"model": "bench", "messages": said})
    answer.raise_for_status()
    message: dict[str, str] = answer.json()["choices"][0]["message"]
    return message


def scanned_record(recorder: Recorder) -> Walk:
    """Walk one record of two turns through a scan's judge."""
    messages = (
        Message(role=Role.USER, content=TURNS[0]),
        Message(role=Role.ASSISTANT, content="A vegetable soup is good."),
        Message(role=Role.USER, content=TURNS[1]),
    )
    judge = open_judge(ControllerConfig())
    record = Record(id="walked", messages=messages, file="walk", number=1)
    # Once before, so that loading is not part of the walk.
    line_of(judge, record)
    with recorder.walk() as walk:
        line_of(judge, record)
    return walk


def evaluation(recorder: Recorder) -> Walk:
    """Walk the evaluation of one prompt."""

    async def run() -> Walk:
        async with PromptGuard() as guard:
            await guard.evaluate(TURNS[0])
            return await _recorded(recorder, lambda: guard.evaluate(TURNS[1]))

    return asyncio.run(run())


async def _recorded(recorder: Recorder, work: Callable[[], Awaitable[object]]) -> Walk:
    with recorder.walk() as walk:
        await work()
    return walk


def _caller_file(frame: FrameType) -> str | None:
    """Return the file of the nearest function of ours that led here; None where there is none."""
    back = frame.f_back
    while back is not None:
        if back.f_code.co_filename.startswith(SOURCE):
            return back.f_code.co_filename
        back = back.f_back
    return None


if __name__ == "__main__":
    main()
