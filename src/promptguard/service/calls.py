"""The request under way, as the parts that serve it see it: whose it is and how heavy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum


class Lane(StrEnum):
    """How much a request computes: a short turn, a long one, or a call over a whole session."""

    SHORT = "short"
    LONG = "long"
    HEAVY = "heavy"


@dataclass(slots=True, kw_only=True)
class Call:
    """One request. `is_over`: nobody waits for its result any more.

    `operation`, `model` and `provider` are what it asks of the upstream, once that is known.
    """

    owner: str = ""
    tenant: str = "default"
    lane: Lane = Lane.SHORT
    operation: str = ""
    model: str = ""
    provider: str = ""
    is_over: bool = False


_CALL: ContextVar[Call | None] = ContextVar("promptguard_call", default=None)


def current_call() -> Call:
    """Return the request under way; outside of requests a short one of nobody's."""
    return _CALL.get() or Call()


@contextmanager
def under_way(call: Call) -> Iterator[Call]:
    """Make `call` the request under way in the block and in the tasks that it starts."""
    token = _CALL.set(call)
    try:
        yield call
    except (asyncio.CancelledError, TimeoutError):
        call.is_over = True
        raise
    finally:
        _CALL.reset(token)
