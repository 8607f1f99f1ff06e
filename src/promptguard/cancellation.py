"""Long computations ask here, between their steps, whether to go on.

A thread cannot be stopped from outside. What computes for long calls `checkpoint`; who started it
says with `checkpoints` what that does: raise, or let others go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("promptguard_checkpoint", default=None)


def checkpoint() -> None:
    """Return where the computation may go on; raises what its caller wants raised."""
    check = _CHECK.get()
    if check is not None:
        check()


@contextmanager
def checkpoints(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` at each checkpoint reached in the block, also in threads that it starts."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)
