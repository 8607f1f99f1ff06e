"""Work spread over processes: bounded, in order, and nothing lost when a process dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Worker = Callable[[Sequence[T]], Sequence[R]]
"""Takes some items and returns as many results, in their order."""

CHUNK = 16
AHEAD = 4
MOST_JOBS = 8


def default_jobs() -> int:
    """Return how many processes to use where nobody said: the cores we may use, eight at most."""
    return min(MOST_JOBS, len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1)


def work_off(
    open_worker: Callable[[], Worker[T, R]],
    items: Iterable[T],
    *,
    jobs: int,
    lost: Callable[[T], R],
    chunk: int = CHUNK,
) -> Iterator[R]:
    """Yield one result per item, in the order of the items.

    `open_worker` is called once in each process and must be picklable, as must items and
    results; with one job nothing leaves this process. An item that kills its process twice
    gets `lost(item)`. Items are drawn only as far ahead as keeps every process busy.
    """
    pieces = _cut(items, chunk)
    if jobs <= 1:
        worker = open_worker()
        for piece in pieces:
            yield from worker(piece)
        return
    yield from _Crew(open_worker, jobs, lost).work_off(pieces)


class _Crew(Generic[T, R]):
    def __init__(
        self, open_worker: Callable[[], Worker[T, R]], jobs: int, lost: Callable[[T], R]
    ) -> None:
        self._open_worker = open_worker
        self._jobs = jobs
        self._lost = lost
        self._pool = self._open_pool(jobs)
        self._pending: deque[tuple[Sequence[T], Future[Sequence[R]]]] = deque()

    def work_off(self, pieces: Iterable[Sequence[T]]) -> Iterator[R]:
        try:
            for piece in pieces:
                self._submit(piece)
                if len(self._pending) >= self._jobs * AHEAD:
                    yield from self._take()
            while self._pending:
                yield from self._take()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, piece: Sequence[T]) -> None:
        try:
            future = self._pool.submit(_work, piece)
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)
        self._pending.append((piece, future))

    def _take(self) -> Sequence[R]:
        piece, future = self._pending.popleft()
        try:
            return future.result()
        except BrokenProcessPool:
            waiting = [later for later, _ in self._pending]
            self._pending.clear()
            self._pool.shutdown(wait=True, cancel_futures=True)
            results = self._one_by_one(piece)
            self._pool = self._open_pool(self._jobs)
            for later in waiting:
                self._submit(later)
            return results

    def _one_by_one(self, piece: Sequence[T]) -> Sequence[R]:
        """Do a piece again, item by item, so that only the item that kills is lost."""
        results: list[R] = []
        pool = self._open_pool(1)
        for item in piece:
            try:
                results += pool.submit(_work, [item]).result()
            except BrokenProcessPool:
                results.append(self._lost(item))
                pool.shutdown(wait=True)
                pool = self._open_pool(1)
        pool.shutdown(wait=True)
        return results

    def _open_pool(self, jobs: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            jobs,
            # A forked child would inherit the threads' locks of model and progress bar.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=partial(_prepare, self._open_worker),
        )


_HAS_AFFINITY = hasattr(os, "sched_getaffinity")
_opener: Callable[[], Worker[Any, Any]] | None = None
_worker: Worker[Any, Any] | None = None


def _prepare(open_worker: Callable[[], Worker[Any, Any]]) -> None:
    global _opener
    _opener = open_worker
    # The parent decides what an interrupt means; a child finishes its piece.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(piece: Sequence[Any]) -> Sequence[Any]:
    """Open the worker with the first piece, so that its failure is the caller's to see."""
    global _worker
    if _worker is None:
        assert _opener is not None
        _worker = _opener()
    return _worker(piece)


def _cut(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece
