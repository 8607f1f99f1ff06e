"""How long a turn takes, against the bare model in the same process."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from benchmarks.talk import MESSAGES, REPLIES
from promptguard.config import ControllerConfig, PromptGuardConfig
from promptguard.conversation import Message
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.evaluation import PromptGuard
from promptguard.model.reading import ContextReading, DocumentReading, MessageReading
from promptguard.protocols import Encoder, LayerJudgement, LayerTask
from promptguard.state import SessionState
from promptguard.testing import FakeEncoder
from promptguard.turns.input import TurnInput
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import reply_record
from promptguard.vector import Vector

T = TypeVar("T")
EARLY_TURN = 10
REPEATS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What was measured; `model` is the encoder alone, on the inputs that the turns gave it."""

    turn_p50_ms: float
    turn_p95_ms: float
    turn_p99_ms: float
    model_p50_ms: float
    model_p99_ms: float
    turns_per_second: float
    early_turn: int
    early_turn_ms: float
    late_turn: int
    late_turn_ms: float
    late_state_bytes: int
    evaluate_overhead_ms: float
    load_s: float
    memory_mib: float
    memory_loading_mib: float


class RecordingEncoder:
    """Passes everything on to an encoder and keeps the latest questions."""

    def __init__(self, inner: Encoder) -> None:
        self._inner = inner
        self.asked: list[Callable[[], object]] = []

    def read_messages(
        self, texts: Sequence[str], *, thorough: bool = False
    ) -> tuple[MessageReading, ...]:
        """Judge each text on its own."""
        return self._ask(partial(self._inner.read_messages, tuple(texts), thorough=thorough))

    def read_context(
        self, messages: Sequence[Message], *, system: str = "", thorough: bool = False
    ) -> ContextReading:
        """Judge the last turn in its context."""
        given = tuple(messages)
        return self._ask(partial(self._inner.read_context, given, system=system, thorough=thorough))

    def read_documents(
        self, contents: Sequence[str], *, task: str = "", thorough: bool = False
    ) -> tuple[DocumentReading, ...]:
        """Judge untrusted contents."""
        given = tuple(contents)
        return self._ask(partial(self._inner.read_documents, given, task=task, thorough=thorough))

    def _ask(self, ask: Callable[[], T]) -> T:
        self.asked.append(ask)
        return ask()

    def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return one unit vector per text."""
        return self._inner.embed(texts)


class InstantJudge:
    """A judge that costs nothing, so that what is left is the guard's own time."""

    name = "instant"

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Answer at once."""
        return LayerJudgement(
            value=Neutrosophic(0.9, 0.1, 0.1), evaluation_type=task.evaluation_type, model=self.name
        )


def measure_speed(*, turns: int, long_turns: int) -> Speed:
    """Measure everything, one thing after the other."""
    start = time.perf_counter()
    judge = TurnJudge.open(ControllerConfig())
    assert judge.encoder is not None
    judge.encoder.embed(("ready",))
    load_s = time.perf_counter() - start
    turn_ms, model_ms = time_turns(judge, turns)
    # A peak never falls again, so that it is taken before the thorough reader is loaded.
    memory_mib = peak_memory_mib()
    early = state_after(judge, EARLY_TURN - 1)
    late = state_after(judge, long_turns - 1)
    early_ms, late_ms = time_states(judge, early, late)
    judge.encoder.read_messages(("ready",), thorough=True)
    return Speed(
        turn_p50_ms=_at(turn_ms, 50),
        turn_p95_ms=_at(turn_ms, 95),
        turn_p99_ms=_at(turn_ms, 99),
        model_p50_ms=_at(model_ms, 50),
        model_p99_ms=_at(model_ms, 99),
        turns_per_second=round(1000 * len(turn_ms) / sum(turn_ms), 1),
        early_turn=EARLY_TURN,
        early_turn_ms=_at(early_ms, 50),
        late_turn=long_turns,
        late_turn_ms=_at(late_ms, 50),
        late_state_bytes=len(late.to_json().encode()),
        evaluate_overhead_ms=_at(time_evaluate(), 50),
        load_s=round(load_s, 3),
        memory_mib=round(memory_mib, 1),
        memory_loading_mib=round(peak_memory_mib(), 1),
    )


def time_turns(judge: TurnJudge, turns: int) -> tuple[list[float], list[float]]:
    """Time turns, and after each of them the model alone on what that turn asked it."""
    assert judge.encoder is not None
    recording = RecordingEncoder(judge.encoder)
    judge = replace(judge, encoder=recording)
    turn_ms, model_ms = [], []
    state = SessionState(session_id="bench")
    for number in range(turns):
        recording.asked.clear()
        # Numbered, because the readers remember the windows they have just read.
        turn = TurnInput(text=f"{MESSAGES[number % len(MESSAGES)]} ({number})")
        began = time.perf_counter()
        _, state = judge.judge(state, turn, now=30.0 * number)
        turn_ms.append((time.perf_counter() - began) * 1e3)
        model_ms.append(_time_again(tuple(recording.asked)))
        state = _answered(state, number)
    return turn_ms, model_ms


def _time_again(asked: Sequence[Callable[[], object]]) -> float:
    """Return how long the questions take in a thread that remembers no windows."""

    def ask_all() -> float:
        began = time.perf_counter()
        for ask in asked:
            ask()
        return (time.perf_counter() - began) * 1e3

    # The readers remember windows for each thread.
    with ThreadPoolExecutor(max_workers=1) as fresh:
        return fresh.submit(ask_all).result()


def state_after(judge: TurnJudge, turns: int) -> SessionState:
    """Return a session of `turns` turns, read by a quick stand-in for the model."""
    # Ten thousand turns with the real readers would take minutes.
    quick = replace(judge, encoder=FakeEncoder())
    state = SessionState(session_id="bench")
    for number in range(turns):
        turn = TurnInput(text=MESSAGES[number % len(MESSAGES)])
        _, state = quick.judge(state, turn, now=30.0 * number)
        state = _answered(state, number)
    return state


def time_states(
    judge: TurnJudge, early: SessionState, late: SessionState
) -> tuple[list[float], list[float]]:
    """Time the same message at an early and at a late turn, by turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(REPEATS):
        for state, found in zip((early, late), times, strict=True):
            turn = TurnInput(text=f"{MESSAGES[3]} ({number}, {state.turn_count})")
            began = time.perf_counter()
            judge.judge(state, turn, now=state.updated + 30.0)
            found.append((time.perf_counter() - began) * 1e3)
    return times


def time_evaluate() -> list[float]:
    """Time the evaluation of one prompt where the judge costs nothing."""

    async def run() -> list[float]:
        found = []
        async with PromptGuard(PromptGuardConfig(), judges=[InstantJudge()]) as guard:
            for number in range(5 * REPEATS):
                began = time.perf_counter()
                await guard.evaluate(user=MESSAGES[number % len(MESSAGES)])
                found.append((time.perf_counter() - began) * 1e3)
        return found

    return asyncio.run(run())


def peak_memory_mib() -> float:
    """Return the most memory that this process held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes here, Linux kibibytes.
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _answered(state: SessionState, number: int) -> SessionState:
    reply = reply_record(REPLIES[number % len(REPLIES)], 30.0 * number + 5.0)
    return state.with_reply(state.turn_count, reply)


def _at(values: Sequence[float], share: float) -> float:
    return round(float(np.percentile(values, share)), 3)
