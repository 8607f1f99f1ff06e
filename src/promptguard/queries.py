"""What can be asked of stored turns and sessions, and the answers: plain values."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from urllib.parse import quote

from promptguard.state import SessionState, is_demo
from promptguard.verdict import Action, Verdict

# Turns at least this severe were interfered with; the partial index of the stores says the same.
FLAGGED_SEVERITY = Action.STEER.severity
_PLAIN = re.compile(r"[A-Za-z0-9._~:@=+-]+\Z")
_PLAIN_CHARS = 128


class LabelFilter(StrEnum):
    """Which labels a session or a turn may have; `none` is no label yet."""

    ANY = ""
    NONE = "none"
    ATTACK = "attack"
    FALSE_ALARM = "false_alarm"


class SessionSort(StrEnum):
    """By what a list of sessions is ordered."""

    UPDATED = "updated"
    RISK = "risk"
    PEAK = "peak"
    TURNS = "turns"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """One judged turn as lists and statistics see it.

    `signal` and `reason` are the strongest evidence for an attack. `key` is the API key's name
    where the session id begins with one. `words` is the searchable text, None where not kept.
    """

    tenant: str
    session_id: str
    turn: int
    position: int
    second: int
    action: Action
    turn_risk: float
    signal: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    language: str = ""
    key: str = ""
    latency_ms: float | None = None
    is_demo: bool = False
    label: str = ""
    words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """Which turns count; what is empty or None restricts nothing.

    `tag`, `signal` and `reason` are asked of turns that were interfered with: every harmless turn
    has a strongest signal too. `since` and `until` are seconds since the epoch, the first
    included, the second not.
    """

    actions: tuple[Action, ...] = ()
    tag: str = ""
    signal: str = ""
    reason: str = ""
    language: str = ""
    key: str = ""
    is_demo: bool | None = None
    since: int | None = None
    until: int | None = None

    @property
    def asks_flagged(self) -> bool:
        """Whether only turns that were interfered with can fit."""
        mildest = min((action.severity for action in self.actions), default=0)
        return bool(self.tag or self.signal or self.reason) or mildest >= FLAGGED_SEVERITY

    @property
    def restricts_turns(self) -> bool:
        """Whether it asks for more than a whole session can answer."""
        return replace(self, key="", is_demo=None) != TurnFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session in a list, with its most severe turn and that turn's text where kept."""

    state: SessionState
    label: str = ""
    worst: StoredTurn | None = None
    text: str | None = None

    @property
    def is_demo(self) -> bool:
        """Whether the session is one of the bundled conversations."""
        return is_demo(self.state.session_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListPage:
    """One page of a list, and how many sessions there are in all."""

    rows: tuple[SessionRow, ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnQuery:
    """Which turns to list, newest first.

    With `min_risk`, turns that were interfered with and those at least that risky.
    """

    tenant: str | None = "default"
    turns: TurnFilter = field(default_factory=TurnFilter)
    label: LabelFilter = LabelFilter.ANY
    min_risk: float | None = None
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """A turn in a list, with its text where kept, and its verdict where this version reads it."""

    turn: StoredTurn
    text: str | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQuery:
    """The next judged turns of a tenant after one of them, session by session, in order."""

    tenant: str = "default"
    after_session: str = ""
    after_turn: int = 0
    with_demo: bool = False
    limit: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTurn:
    """A judged turn with its whole verdict, in the stored form."""

    session_id: str
    turn: int
    timestamp: float
    action: Action
    label: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewQuery:
    """What to sum up: turns from `since` to `until`, in stretches of `bucket_s` seconds.

    The first stretch begins at `start`, by default at `since`; no turn before `since` counts.
    """

    since: int
    until: int
    bucket_s: int
    start: int | None = None
    tenant: str | None = "default"
    is_demo: bool | None = None
    top: int = 8

    @property
    def turns(self) -> TurnFilter:
        """The turns that count."""
        return TurnFilter(since=self.since, until=self.until, is_demo=self.is_demo)

    @property
    def buckets(self) -> int:
        """How many stretches there are; the last may be shorter."""
        return max(0, -(-(self.until - self.begins) // self.bucket_s))

    @property
    def begins(self) -> int:
        """Where the first stretch begins."""
        return self.since if self.start is None else self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The turns of one stretch of time, by what was done about them."""

    start: int
    turns: int = 0
    steered: int = 0
    stripped: int = 0
    blocked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many flagged turns have something in common, and how many of them were blocked."""

    name: str
    turns: int
    blocked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long judging took, over the newest `turns` turns that say so."""

    turns: int
    median_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What people said of flagged turns; of blocked ones apart."""

    attacks: int = 0
    false_alarms: int = 0
    blocked_attacks: int = 0
    blocked_false_alarms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Turns over time, and what the flagged ones have in common, most frequent first."""

    buckets: tuple[Bucket, ...]
    reasons: tuple[Count, ...] = ()
    signals: tuple[Count, ...] = ()
    tags: tuple[Count, ...] = ()
    sessions: tuple[Count, ...] = ()
    keys: tuple[Count, ...] = ()
    languages: tuple[Count, ...] = ()
    latency: Latency | None = None

    @property
    def total(self) -> Bucket:
        """All stretches together."""
        counted = ("turns", "steered", "stripped", "blocked")
        sums = {name: sum(getattr(each, name) for each in self.buckets) for name in counted}
        return Bucket(start=self.buckets[0].start if self.buckets else 0, **sums)


def plain_id(session_id: str) -> str:
    """Return an id that is safe in headers, paths and logs, as the service stores it.

    Other characters are encoded as in an address, but with a tilde, so that the id can stand in
    one; it stays as it is when it comes back. An id that is too long then becomes a hash.
    """
    plain = plain_part(session_id)
    if 0 < len(plain) <= _PLAIN_CHARS:
        return plain
    return "x-" + hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:40]


def plain_part(text: str) -> str:
    """Return part of an id as it stands within the plain form."""
    if _PLAIN.match(text):
        return text
    encoded = quote(text, safe=":@=+", errors="surrogatepass")
    # The text's own tildes first, or those that stand for a percent sign would be encoded again.
    return encoded.replace("~", "~7E").replace("%", "~")
