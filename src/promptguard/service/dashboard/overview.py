"""What happened lately: turns over time, what the flagged ones have in common, latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup
from starlette.requests import Request

from promptguard.protocols import SessionQuery, SessionStore
from promptguard.queries import Bucket, Count, Overview, OverviewQuery, TurnFilter
from promptguard.service.dashboard.components import Tag, page_frame, raw, session_url
from promptguard.service.dashboard.filters import Demo, ListFilter, moment_of, second_of
from promptguard.service.dashboard.templates import render
from promptguard.service.dashboard.timeline import ALL, timeline

_HOUR_S, _DAY_S = 3600, 86_400
RANGES = {
    "1h": ("Last hour", _HOUR_S),
    "24h": ("Last 24 hours", _DAY_S),
    "7d": ("Last 7 days", 7 * _DAY_S),
    "30d": ("Last 30 days", 30 * _DAY_S),
    "90d": ("Last 90 days", 90 * _DAY_S),
}
_DEFAULT_RANGE = "24h"
_MOST_BUCKETS = 60
_WIDTHS_S = (60, 300, 900, _HOUR_S, 2 * _HOUR_S, 6 * _HOUR_S, 12 * _HOUR_S, _DAY_S, 7 * _DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A stretch of time: one of the named ones, or from a moment to another."""

    name: str
    since: int
    until: int

    @classmethod
    def from_params(cls, params: Mapping[str, str], now: float) -> Range:
        """Read a range from an address; anything else is the last 24 hours."""
        # The end is not included, and turns are stored by whole seconds.
        end = int(now) + 1
        since = second_of(params.get("since", ""))
        until = second_of(params.get("until", ""))
        if since is not None and since < (until if until is not None else end):
            return cls(name="custom", since=since, until=until if until is not None else end)
        name = params.get("range", "")
        name = name if name in RANGES else _DEFAULT_RANGE
        return cls(name=name, since=end - RANGES[name][1], until=end)

    @property
    def bucket_s(self) -> int:
        """How long a stretch of the chart is, so that the chart has about sixty."""
        least = (self.until - self.since) / _MOST_BUCKETS
        week = _WIDTHS_S[-1]
        return next((w for w in _WIDTHS_S if w >= least), week * -(-int(least) // week))

    def query(self, tenant: str, *, is_demo: bool | None) -> OverviewQuery:
        """Return what to ask the store; stretches begin at full minutes, hours or days."""
        return OverviewQuery(
            tenant=tenant,
            since=self.since,
            until=self.until,
            bucket_s=self.bucket_s,
            start=self.since - self.since % self.bucket_s,
            is_demo=is_demo,
        )


async def demo_filter(store: SessionStore, tenant: str, demo: str) -> tuple[bool | None, int]:
    """Return the filter that a choice means, and how many bundled conversations it hides."""

    async def total(is_demo: bool) -> int:
        turns = TurnFilter(is_demo=is_demo)
        return (await store.page(SessionQuery(tenant=tenant, turns=turns, limit=1))).total

    if demo in (Demo.SHOW, Demo.ONLY):
        return (None if demo == Demo.SHOW else True), 0
    bundled = await total(True)
    if demo == Demo.AUTO and bundled and not await total(False):
        return None, 0
    return False, bundled


async def show_overview(request: Request) -> None:
    """Build the page."""
    params = request.query_params
    demo = ListFilter.from_params(params).demo
    with page_frame(request, "/", "Overview") as page:
        Tag("h1", "Overview")
        is_demo, hidden = await demo_filter(page.store, page.tenant, demo)
        chosen = Range.from_params(params, page.context.clock())
        found = await page.store.overview(chosen.query(page.tenant, is_demo=is_demo))
        raw(overview_html(found, chosen, page.base, demo=demo, hidden=hidden))


def overview_html(
    found: Overview, chosen: Range, base: str, *, demo: str = "", hidden: int = 0
) -> Markup:
    """Return range picker, numbers, charts and top lists; everything leads to its sessions."""
    listed = ListFilter(since=moment_of(chosen.since), until=moment_of(chosen.until), demo=demo)

    sessions = partial(listed.url, base)

    def of_bucket(bucket: Bucket) -> str:
        # The first and the last stretch may reach beyond the range.
        ends = moment_of(min(bucket.start + chosen.bucket_s, chosen.until))
        return sessions(since=moment_of(max(bucket.start, chosen.since)), until=ends)

    total = found.total
    numbers = (
        ("Turns", total.turns, sessions(), ""),
        ("Blocked", total.blocked, sessions(action="block"), "bad" if total.blocked else ""),
        ("Stripped", total.stripped, sessions(action="strip"), ""),
        ("Steered", total.steered, sessions(action="steer"), ""),
    )
    charts = (
        timeline(found.buckets, chosen.bucket_s, of_bucket),
        timeline(found.buckets, chosen.bucket_s, of_bucket, ALL, height=120),
    )
    ranges = [(name, wording) for name, (wording, _) in RANGES.items()]
    return render(
        "overview", "page", base, chosen, ranges, listed, numbers, charts, found.latency,
        _lists(found, base, sessions), hidden,
    )  # fmt: skip


def _lists(
    found: Overview, base: str, sessions: Callable[..., str]
) -> list[tuple[str, str, list[tuple[str, Count, str]]]]:
    def linked(counts: tuple[Count, ...], field: str) -> list[tuple[str, Count, str]]:
        return [(each.name, each, sessions(**{field: each.name})) for each in counts]

    by_session = [(each.name, each, session_url(base, each.name)) for each in found.sessions]
    return [
        ("Reasons", "Why turns were flagged", linked(found.reasons, "reason")),
        ("Signals", "The strongest evidence of each turn", linked(found.signals, "signal")),
        ("Tags", "OWASP and MITRE ATLAS classes", linked(found.tags, "tag")),
        ("Sessions", "With most flagged turns", by_session),
        ("Keys", "API keys whose sessions were flagged", linked(found.keys, "key")),
        ("Languages", "Guessed from the text", linked(found.languages, "language")),
    ]
