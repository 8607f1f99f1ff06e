"""Which admitted turn a proxy's later message belongs to, by the proxy's own call id."""

from __future__ import annotations

from collections import OrderedDict

from promptguard.service.auth import Principal
from promptguard.service.intake import Admission

MAX_CALLS = 1000


class RecentCalls:
    """Bounded; the oldest are forgotten. Calls of one key are not found with another."""

    def __init__(self, limit: int = MAX_CALLS) -> None:
        self._limit = limit
        self._calls: OrderedDict[tuple[str, str, str], Admission] = OrderedDict()

    def note(self, caller: Principal, call_id: str, admission: Admission) -> None:
        """Remember the turn of a call."""
        self._calls[caller.tenant, caller.name, call_id] = admission
        if len(self._calls) > self._limit:
            self._calls.popitem(last=False)

    def find(self, caller: Principal, call_id: str) -> Admission | None:
        """Return the turn of a call, None where it is not known here."""
        return self._calls.get((caller.tenant, caller.name, call_id))
