"""Work spread over processes: bounded, in order, and nothing lost when a process dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Worker = Callable[[Sequence[T]], Sequence[R]]
"""Takes some items and returns as many results, in their order."""

CHUNK = 16
AHEAD = 4
MOST_JOBS = 8


def default_jobs() -> int:
    """Return how many processes to use by default: the cores we may use, eight at most."""
    # A container may be allowed fewer cores than the machine has.
    return min(MOST_JOBS, len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1)


def map_ordered(
    open_worker: Callable[[], Worker[T, R]],
    items: Iterable[T],
    *,
    jobs: int,
    lost: Callable[[T], R],
    chunk: int = CHUNK,
) -> Generator[R, None, None]:
    """Yield one result per item, in the order of the items.

    `open_worker` is called once in each process and must be picklable, as must items and
    results; with one job nothing leaves this process. An item that kills its process twice
    gets `lost(item)`. Items are drawn only as far ahead as keeps every process busy. Closing
    the iterator, an error or an interrupt ends the processes at once, as does this process's
    own end.
    """
    chunks = _chunks(items, chunk)
    if jobs <= 1:
        worker = open_worker()
        for piece in chunks:
            yield from worker(piece)
        return
    pool = _Processes(open_worker, jobs)
    pending: deque[tuple[Sequence[T], Future[Sequence[R]]]] = deque()
    try:
        while True:
            for new in islice(chunks, jobs * AHEAD - len(pending)):
                pending.append((new, pool.submit(new)))
            if not pending:
                return
            oldest, future = pending.popleft()
            try:
                results = future.result()
            except BrokenProcessPool:
                # One death fails all futures of a pool, those of other processes too.
                pool.end()
                results = _one_by_one(open_worker, oldest, lost)
                pool = _Processes(open_worker, jobs)
                pending = deque((later, pool.submit(later)) for later, _ in pending)
            yield from results
    finally:
        pool.end()


def _one_by_one(
    open_worker: Callable[[], Worker[T, R]], chunk: Sequence[T], lost: Callable[[T], R]
) -> list[R]:
    """Do a chunk again, item by item, so that only the item that kills is lost."""
    results: list[R] = []
    pool = _Processes(open_worker, 1)
    try:
        for item in chunk:
            try:
                results += pool.submit([item]).result()
            except BrokenProcessPool:
                results.append(lost(item))
                pool.end()
                pool = _Processes(open_worker, 1)
    finally:
        pool.end()
    return results


class _Processes(Generic[T, R]):
    """A pool of processes that end at once when told to, and when their parent is gone.

    Each child holds the reading end of a pipe whose writing end only the parent has; the pipe
    closes when the parent says so and, by the kernel's hand, when the parent is killed.
    """

    def __init__(self, open_worker: Callable[[], Worker[T, R]], jobs: int) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            jobs,
            # A forked child would inherit the threads' locks of model and progress bar.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(open_worker, self._reader),
        )

    def submit(self, chunk: Sequence[T]) -> Future[Sequence[R]]:
        try:
            with without_interrupts():
                return self._pool.submit(_work, chunk)
        except BrokenProcessPool as error:
            # Told where the result is taken, so that a death is dealt with in one place.
            failed: Future[Sequence[R]] = Future()
            failed.set_exception(error)
            return failed

    def end(self) -> None:
        # The children end when the pipe closes; else the wait below lasts as long as their work.
        self._writer.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._reader.close()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from a child that is being started: it inherits what is blocked here."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_HAS_AFFINITY = hasattr(os, "sched_getaffinity")
_opener: Callable[[], Worker[Any, Any]] | None = None
_worker: Worker[Any, Any] | None = None


def _prepare(open_worker: Callable[[], Worker[Any, Any]], lifeline: Connection) -> None:
    global _opener
    _opener = open_worker
    # The parent decides what an interrupt means, and closes the lifeline where it means the end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, args=(lifeline,), daemon=True).start()


def end_with_parent(lifeline: Connection) -> None:
    """End this process when the other end of `lifeline`, which its parent holds, is closed."""
    # Nothing is ever sent, so that this returns only when the pipe is closed.
    lifeline.poll(None)
    # Not sys.exit: the main thread may be inside the model for seconds.
    os._exit(1)


def _work(chunk: Sequence[Any]) -> Sequence[Any]:
    """Open the worker with the first chunk, so that its failure is the caller's to see."""
    global _worker
    if _worker is None:
        assert _opener is not None
        _worker = _opener()
    return _worker(chunk)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
