"""Long computations: whether they go on, and where they run.

A thread cannot be stopped from outside. A long computation calls `checkpoint` between its steps;
its caller sets with `checkpoints` what that does: raise, or wait until others have gone first.

The computation itself is called through `offloaded`, with arguments that can be pickled. Inside a
block of `offloading` it runs where that sends it, such as in a child process; elsewhere
`offloaded` is a plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Offload = Callable[[Callable[[], Any]], Any]
"""Takes a computation, which can be pickled, and returns its result."""

# Context variables, because `asyncio.to_thread` hands them on to the thread it starts.
_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("promptguard_checkpoint", default=None)
_OFFLOAD: ContextVar[Offload | None] = ContextVar("promptguard_offload", default=None)


def checkpoint() -> None:
    """Return where the computation may go on; raises what its caller wants raised."""
    check = _CHECK.get()
    if check is not None:
        check()


def checkpoints(check: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `check` at each checkpoint reached in the block, also in threads that it starts."""
    return _holding(_CHECK, check)


def offloaded(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `work(...)`. Waits for it, so call it in a thread."""
    offload = _OFFLOAD.get()
    if offload is None:
        return work(*args, **kwargs)
    result: T = offload(partial(work, *args, **kwargs))
    return result


def offloading(offload: Offload) -> AbstractContextManager[None]:
    """Give the computations of the block to `offload`, also those in threads that it starts."""
    return _holding(_OFFLOAD, offload)


@contextmanager
def _holding(variable: ContextVar[T | None], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
