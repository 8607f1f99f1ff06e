"""The cascade's allowance of calls and money, per session and per day, in this process."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from promptguard.config import BudgetConfig
from promptguard.errors import BudgetError
from promptguard.usage import Usage

DAY_S = 24 * 3600.0
_SESSIONS_REMEMBERED = 100_000


class Budget:
    """Counts calls before they are made and money after.

    What a call will cost is not known beforehand: calls under way are counted at the price of
    the dearest call so far, so the money can be exceeded only until the first price is known.
    """

    def __init__(self, config: BudgetConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._day: deque[tuple[float, float]] = deque()
        self._sessions: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._under_way = 0
        self._dearest_usd = 0.0
        self._spent_usd = 0.0

    def take(self, session: str) -> None:
        """Count one call as under way; BudgetError where it may not be made."""
        with self._lock:
            self._take(session)

    def settle(self, session: str, usage: Usage | None) -> None:
        """Close a call: with its usage, or with None where it was not made after all."""
        with self._lock:
            self._settle(session, usage)

    def _take(self, session: str) -> None:
        self._forget_old(self._clock())
        if self._sessions.get(session, 0) >= self._config.calls_per_session:
            raise BudgetError("The session's allowance of calls is spent.")
        if len(self._day) + self._under_way >= self._config.calls_per_day:
            raise BudgetError("The day's allowance of calls is spent.")
        expected = self._spent_usd + (self._under_way + 1) * self._dearest_usd
        if expected > self._config.usd_per_day:
            raise BudgetError("The day's allowance of money is spent.")
        self._under_way += 1
        self._count_session(session, 1)

    def _settle(self, session: str, usage: Usage | None) -> None:
        self._under_way -= 1
        if usage is None:
            self._count_session(session, -1)
            return
        self._day.append((self._clock(), usage.cost_usd))
        self._spent_usd += usage.cost_usd
        self._dearest_usd = max(self._dearest_usd, usage.cost_usd)

    def _count_session(self, session: str, step: int) -> None:
        self._sessions[session] = self._sessions.get(session, 0) + step
        self._sessions.move_to_end(session)
        while len(self._sessions) > _SESSIONS_REMEMBERED:
            self._sessions.popitem(last=False)

    def _forget_old(self, now: float) -> None:
        while self._day and self._day[0][0] <= now - DAY_S:
            self._spent_usd -= self._day.popleft()[1]
        if not self._day:
            self._spent_usd = 0.0
