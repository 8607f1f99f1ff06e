"""A process of its own for long and heavy computations, so that they hold no short turn up.

Threads of one process share its interpreter; another process, of lower priority, takes only what
is left of the cores. Each thread of the lanes for long and heavy requests has a connection to the
child, and in the child a thread that serves it. Whoever asks may leave: the computation ends at
its next checkpoint. A child that dies is replaced and asked once more, and it ends with its parent.
"""

from __future__ import annotations

import copyreg
import io
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

from promptguard.computations import checkpoints
from promptguard.config import ControllerConfig, ServiceConfig
from promptguard.errors import EvaluationError
from promptguard.service.lanes import Abandoned, Call, Lane
from promptguard.service.logs import log
from promptguard.service.settings import try_out
from promptguard.turns.judge import TurnJudge
from promptguard.workers import end_with_parent, without_interrupts

OpenJudge = Callable[[ControllerConfig], TurnJudge]
# What the child's first judge is opened with, and its number.
_First = tuple[OpenJudge, ControllerConfig, int]
# How much lower than the parent's the priority of the child is.
NICENESS = 10
# How often somebody who waits for the child looks whether its own caller still waits.
GLANCE_S = 0.05
# How long an abandoned computation may take to its next checkpoint before the child is killed.
GRACE_S = 5.0
# How long a heavy computation lets long turns go first at each checkpoint.
PATIENCE_S = 0.5
_PAUSE_S = 0.01
_CANCEL = b""
_TRIES = 2


class ChildDied(Exception):
    """The child ended before it answered."""


class Child:
    """The child process as its parent sees it; opened with the first computation or `start`.

    `open_judge` is called in the child, once for `judge` and again for each that a reload puts in
    its place, and must be picklable.
    """

    def __init__(
        self, open_judge: OpenJudge, judge: TurnJudge, connections: Mapping[Lane, int]
    ) -> None:
        self._open_judge = open_judge
        self._judge = judge
        self._number = 0
        self._connections = dict(connections)
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._is_closed = False

    def run(self, call: Call, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, computed in the child on the lane of `call`.

        Raises what `work` raises, Abandoned where the request is over, and EvaluationError where
        the child died of it.
        """
        # Once, before the first try: what cannot be pickled is no fault of the child.
        asked = self._pickled(work)
        for _ in range(_TRIES):
            running = self._started()
            with suppress(ChildDied):
                return running.ask(asked, call)
            self._replace(running)
        raise EvaluationError("The process that judges long texts died of this one.")

    async def start(self) -> None:
        """Start the child, so that the first long request does not wait for it."""
        self._started()

    async def close(self) -> None:
        """End the child; what it still computes is lost."""
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, None
        if running is not None:
            running.end()

    def _started(self) -> _Running:
        with self._lock:
            if self._is_closed:
                raise Abandoned
            if self._running is None:
                first = self._open_judge, self._judge.config, self._number
                self._running = _Running(first, self._connections)
            return self._running

    def _pickled(self, work: Callable[[], Any]) -> bytes:
        """Return `work` for the child; a judge goes as its settings, for the child has its own."""
        written = io.BytesIO()
        pickler = pickle.Pickler(written, pickle.HIGHEST_PROTOCOL)
        # The readers alone are too large to travel with every computation.
        pickler.dispatch_table = copyreg.dispatch_table | {TurnJudge: self._reduced}
        pickler.dump(work)
        return written.getvalue()

    def _reduced(self, judge: TurnJudge) -> tuple[Callable[..., TurnJudge], tuple[Any, ...]]:
        with self._lock:
            # Numbered and not told by its settings: after a reload they may be the same, and the
            # rules in the files that they name others.
            if judge is not self._judge:
                self._judge, self._number = judge, self._number + 1
            return _judge_of, (judge.config, self._number)

    def _replace(self, dead: _Running) -> None:
        """Forget a dead child; of several who notice, one does."""
        with self._lock:
            if self._running is not dead or self._is_closed:
                return
            self._running = None
        log(logging.WARNING, "child died", exit_code=dead.end())


class _Running:
    """One process with its connections."""

    def __init__(self, first: _First, connections: Mapping[Lane, int]) -> None:
        # A forked child would inherit the locks of the parent's threads.
        context = multiprocessing.get_context("spawn")
        lifeline, self._lifeline = context.Pipe(duplex=False)
        self._free: dict[Lane, SimpleQueue[Connection]] = {}
        theirs: list[tuple[Lane, Connection]] = []
        for lane, count in connections.items():
            self._free[lane] = SimpleQueue()
            for _ in range(count):
                ours, other = context.Pipe()
                self._free[lane].put(ours)
                theirs.append((lane, other))
        self._process: BaseProcess = context.Process(
            target=_serve_all, args=(first, theirs, lifeline), daemon=True
        )
        # A Ctrl-C of the terminal reaches the whole group; the parent ends the child in order.
        with without_interrupts():
            self._process.start()
        # Held by the child alone from now on, so that its end closes them.
        for each in (lifeline, *(connection for _, connection in theirs)):
            each.close()

    def ask(self, asked: bytes, call: Call) -> Any:
        connection = self._free[call.lane].get()
        try:
            connection.send_bytes(asked)
            while not connection.poll(GLANCE_S):
                if call.is_over:
                    self._abandon(connection)
            value, error = pickle.loads(connection.recv_bytes())  # noqa: S301 our child wrote it
        except (OSError, EOFError):
            raise ChildDied from None
        finally:
            self._free[call.lane].put(connection)
        if error is not None:
            raise error
        return value

    def end(self) -> int | None:
        """Kill the process; returns its exit code."""
        with suppress(OSError):
            self._lifeline.close()
        self._process.kill()
        self._process.join()
        return self._process.exitcode

    def _abandon(self, connection: Connection) -> None:
        """Tell the child to stop, and wait until it has; raises Abandoned."""
        connection.send_bytes(_CANCEL)
        if connection.poll(GRACE_S):
            # Taken off the connection, which the next computation will use.
            connection.recv_bytes()
        else:
            self._process.kill()
        raise Abandoned


class _Judges:
    """The child's judge: opened once, and again after a reload of the parent."""

    def __init__(self, open_judge: OpenJudge, config: ControllerConfig, number: int) -> None:
        self._open, self._lock = open_judge, threading.Lock()
        self._judge, self._number = open_judge(config), number
        try_out(self._judge)

    def find(self, config: ControllerConfig, number: int) -> TurnJudge:
        with self._lock:
            if number != self._number:
                self._judge, self._number = self._open(config), number
            return self._judge


_judges: _Judges | None = None


def _judge_of(config: ControllerConfig, number: int) -> TurnJudge:
    assert _judges is not None, "judges are unpickled in a child only"
    return _judges.find(config, number)


def _serve_all(
    first: _First, connections: list[tuple[Lane, Connection]], lifeline: Connection
) -> None:
    """Serve every connection until the parent ends."""
    global _judges
    # The parent decides what interrupts and reloads mean.
    for ignored in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):
        signal.signal(ignored, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    threading.Thread(target=end_with_parent, args=(lifeline,), daemon=True).start()
    _judges = _Judges(*first)
    long_turns: set[Connection] = set()
    threads = [
        threading.Thread(target=_serve, args=(connection, lane, long_turns))
        for lane, connection in connections
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(connection: Connection, lane: Lane, long_turns: set[Connection]) -> None:
    """Compute what is asked over a connection; `long_turns` has those with a long turn."""

    def check() -> None:
        left_s = PATIENCE_S if lane is Lane.HEAVY else 0.0
        while True:
            # Anything that arrives during a computation is its cancellation, or the parent's end.
            if connection.poll():
                raise Abandoned
            if left_s <= 0 or not long_turns:
                return
            time.sleep(_PAUSE_S)
            left_s -= _PAUSE_S

    with suppress(EOFError, OSError):
        while True:
            asked = connection.recv_bytes()
            # It came after the result was sent; there is nothing left to stop.
            if asked == _CANCEL:
                continue
            if lane is Lane.LONG:
                long_turns.add(connection)
            with checkpoints(check):
                answer = _answer(asked)
            long_turns.discard(connection)
            connection.send_bytes(answer)


def _answer(asked: bytes) -> bytes:
    """Return what became of a computation: its value and the error it raised, one of them None."""
    value, error = None, None
    try:
        value = pickle.loads(asked)()  # noqa: S301 our own parent wrote it
    except Exception as raised:
        error = raised
    try:
        written = pickle.dumps((value, error), pickle.HIGHEST_PROTOCOL)
        if error is not None:
            pickle.loads(written)  # noqa: S301 some errors can be written and not read
    except Exception:
        name = type(error or value).__name__
        failed = EvaluationError(f"A computation ended in {name}, which cannot be passed on.")
        return pickle.dumps((None, failed))
    return written


def lane_connections(config: ServiceConfig) -> dict[Lane, int]:
    """Return how many computations of each lane the child does at once; none where it is off."""
    if not config.child_process:
        return {}
    return {Lane.LONG: config.long_threads, Lane.HEAVY: config.heavy_threads}
