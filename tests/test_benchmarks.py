"""The benchmarks that compare versions: what they count and when they fail."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main as bench
from benchmarks.attribution import LIMIT, TYPES, asked_in, drawn, shares
from benchmarks.first_prompts import lines
from benchmarks.halves import half_of
from benchmarks.latency import line, timed
from benchmarks.same_verdicts import compare
from benchmarks.walk import Recorder, Walk, gateway_turn
from promptguard import __version__
from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role
from promptguard.records.fields import FieldMap
from promptguard.testing import FakeEncoder
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.validation.dataset import Case
from promptguard.workers import map_ordered


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    before = sys.getprofile()
    yield Recorder()
    sys.setprofile(before)
    threading.setprofile(None)  # type: ignore[arg-type]


def test_a_walk_counts_files_functions_and_hops(recorder: Recorder) -> None:
    """Only our own functions, each file once, and calls within a file are no hops."""
    with recorder.walk() as walked:
        FieldMap.parse(["text=question"])
        FieldMap.parse(["text=question"])
    assert list(walked.files) == ["records/fields.py"]
    assert len(walked.functions) == 2
    assert (walked.calls, walked.hops) == (4, 2)


def test_a_resumed_function_is_entered_once(recorder: Recorder) -> None:
    """A generator that is continued a hundred times is one call."""

    def open_worker() -> Any:
        return list

    with recorder.walk() as walked:
        assert list(map_ordered(open_worker, range(100), jobs=1, lost=int, chunk=1))
    assert {code.co_name for code in walked.functions} == {"map_ordered", "_chunks"}
    assert walked.calls == 2


def test_nothing_is_recorded_outside_the_block(recorder: Recorder) -> None:
    """The walk is of one request, not of what comes after."""
    with recorder.walk() as walked:
        pass
    FieldMap.parse([])
    assert walked == Walk()


def verdict(text: str) -> Any:
    judge = TurnJudge.open(ControllerConfig(), encoder=FakeEncoder())
    ((found, _),) = walk(judge, steps_of((Message(role=Role.USER, content=text),)))
    return found.to_dict()


def test_equal_verdicts_are_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """The same text judged twice gives the same numbers."""
    assert compare({"a": [verdict("hi")]}, {"a": [verdict("hi")]}) == 0
    assert "1 alike, 0 differ" in capsys.readouterr().out


def test_the_last_bit_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """A number that differs in its last place, a missing turn and a missing record all differ."""
    old = {"a": [{"risk": 0.1 + 0.2, "evidence": [["fil", 1.0]]}], "b": [], "c": []}
    new = {"a": [{"risk": 0.3, "evidence": [["fil", 1.0]]}], "b": [{}]}
    assert compare(old, new) == 1  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "a: [0].risk: 0.30000000000000004 -> 0.3" in shown
    assert "0 alike, 3 differ" in shown


def test_asyncio_tasks_are_walked_too(recorder: Recorder) -> None:
    """Work handed to a thread counts."""
    with recorder.walk() as walked:
        asyncio.run(asyncio.to_thread(FieldMap.parse, []))  # type: ignore[arg-type]
    assert "records/fields.py" in walked.files


def test_one_turn_through_the_gateway_stays_short_to_follow(recorder: Recorder) -> None:
    """Near the numbers of the page on architecture; a longer walk is to be shortened."""
    walked = gateway_turn(recorder)
    assert len(walked.files) <= 51
    assert walked.hops <= 230


def test_attribution_tells_what_one_type_finds_alone() -> None:
    """Each record counts once: found by both types, by one of them, or by neither."""
    first, second = TYPES
    found = [("a", TYPES), ("a", (first,)), ("a", ()), ("b", (second,))]
    rows = [(r.kind, r.n, r.both, r.only_first, r.only_second, r.neither) for r in shares(found)]
    assert rows == [("a", 3, 1, 1, 0, 1), ("b", 1, 0, 0, 1, 0)]


def test_attribution_draws_evenly_and_always_the_same() -> None:
    """No kind takes another's place, and the whole stays within the limit."""
    cases = [
        Case(
            index=at,
            id=at,
            is_attack=at % 2 == 0,
            label="attack" if at % 2 == 0 else "benign",
            messages=(Message(role=Role.USER, content=str(at)),),
        )
        for at in range(2 * LIMIT)
    ]
    chosen = drawn(cases, LIMIT, seed=0)
    assert len(chosen) == LIMIT
    assert sum(case.is_attack for case in chosen) == LIMIT // 2
    assert chosen == drawn(cases, LIMIT, seed=0)


def test_attribution_judges_the_last_user_message_in_its_context() -> None:
    """What stands before it is its history, and the system prompt a layer of its own."""
    roles = (Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT)
    asked = asked_in([Message(role=role, content=str(at)) for at, role in enumerate(roles)])
    assert (asked.system, asked.user) == ("0", "3")
    assert [message.content for message in asked.history] == ["1", "2"]


def prompt(index: int, *, category: str) -> Case:
    """Return a prompt of the first design's set."""
    is_attack = not category.startswith("benign")
    label = "attack" if is_attack else "benign"
    message = Message(role=Role.USER, content="text")
    return Case(
        index=index,
        id=f"p{index}",
        is_attack=is_attack,
        label=label,
        messages=(message,),
        category=category,
    )


def test_shares_of_the_first_prompts_are_told_by_kind_with_innocent_ones_last() -> None:
    """A share is of its own kind, not of all."""
    found = [(prompt(n, category="jailbreak"), n < 3) for n in range(4)]
    found += [(prompt(n, category="benign_general"), False) for n in range(4, 6)]
    first, second = lines(found)
    assert first.split()[:4] == ["attack", "jailbreak", "4", "0.750"]
    assert second.split()[:4] == ["innocent", "benign_general", "2", "0.000"]


def test_a_prompt_is_always_in_the_same_half() -> None:
    """What was looked at on one run must not be held out on the next."""
    found = "".join(half_of(f"p{n}", byte=0) for n in range(8))
    assert (found, half_of("p0", byte=-1)) == ("AABBBBBB", "A")


def test_the_benchmark_of_speed_runs_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes what it printed, with the version that was timed."""
    out = tmp_path / "speed.json"
    command = ["bench", "--turns", "4", "--long", "12", "--no-history", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    bench()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["version"] == __version__
    assert found["turn_p50_ms"] <= found["turn_p95_ms"] <= found["turn_p99_ms"]
    assert "p95" in capsys.readouterr().out


def test_latency_times_every_turn_of_a_talk() -> None:
    """Turns beyond the bound are left out: a long talk would outweigh the others."""
    judge = TurnJudge.open(ControllerConfig(store="memory:"), encoder=FakeEncoder())
    talk = [Message(role=Role.USER, content=f"question {number}") for number in range(12)]
    taken = list(timed(judge, talk[:3]))
    assert len(taken) == 3
    assert min(taken) > 0
    assert len(list(timed(judge, talk))) == 8


def test_latency_tells_percentiles_of_all_turns() -> None:
    """The count stands before them."""
    assert line("turns", [10.0] * 99 + [500.0]).split()[:6] == [
        "turns",
        "100",
        "p50",
        "10.0",
        "ms",
        "p95",
    ]
