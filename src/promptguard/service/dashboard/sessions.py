"""All sessions: a live table with filters and search."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from markupsafe import Markup
from nicegui import ui
from starlette.requests import Request

from promptguard.protocols import SessionKey, SessionQuery
from promptguard.service.dashboard.access import (
    DashboardContext,
    Visitor,
    base_of,
    context_of,
    visitor_of,
)
from promptguard.service.dashboard.charts import mode_strip, sparkline
from promptguard.service.dashboard.components import (
    Frame,
    Tag,
    button,
    checkbox,
    choice,
    follow,
    page_frame,
    raw,
    search,
    session_url,
)
from promptguard.service.dashboard.templates import render
from promptguard.state import Mode, SessionState

PAGE = 100
_SEARCHED = 400
_LONGEST_SEARCH = 200
_RISKY_FROM = Mode.SUSPECT


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the table shows of a session; `words` is what a search looks in."""

    key: SessionKey
    mode: Mode
    risk: float
    risks: tuple[float, ...]
    turns: int
    blocked: int
    rewrites: int
    updated: float
    last: str
    words: str


def row_of(state: SessionState) -> Row:
    """Return the row of a session."""
    excerpts = [record.excerpt for record in state.recent if record.excerpt]
    return Row(
        key=SessionKey(session_id=state.session_id, tenant=state.tenant),
        mode=state.mode,
        risk=state.accumulated_risk,
        risks=tuple(record.risk for record in state.recent),
        turns=state.turn_count,
        blocked=state.profile.blocked,
        rewrites=state.history_rewrites,
        updated=state.updated,
        last=excerpts[-1] if excerpts else "",
        words="\n".join((state.session_id, *excerpts)).casefold(),
    )


def row_html(row: Row, base: str) -> Markup:
    """Return the cells of a row."""
    url = session_url(base, row.key)
    return render("sessions", "row", row, url, sparkline(row.risks, row.mode))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which sessions are shown."""

    min_mode: Mode = Mode.SAFE
    words: str = ""
    is_blocked: bool = False

    def fits(self, row: Row) -> bool:
        """Say whether a session is shown."""
        return (
            row.mode >= self.min_mode
            and (not self.is_blocked or row.blocked > 0)
            and all(word in row.words for word in self.words.casefold().split())
        )


async def show_sessions(request: Request) -> None:
    """Build the page."""
    with page_frame(request, "/", "Sessions") as frame:
        table = SessionsTable(
            context=context_of(request),
            visitor=visitor_of(request),
            frame=frame,
            base=base_of(request),
        )
        await table.build()


@dataclass(slots=True, kw_only=True)
class SessionsTable:
    """The table of one visitor: what it shows and how it keeps up."""

    context: DashboardContext
    visitor: Visitor
    frame: Frame
    base: str
    filter: Filter = field(default_factory=Filter)
    limit: int = PAGE
    rows: dict[SessionKey, Row] = field(default_factory=dict)
    shown: dict[SessionKey, ui.html] = field(default_factory=dict)
    cards: ui.html = field(init=False)
    body: Tag = field(init=False)
    empty: ui.html = field(init=False)
    more: Tag = field(init=False)

    async def build(self) -> None:
        """Place everything and begin to follow the store."""
        follow(self.context, self.visitor, self.on_change, self.frame.show_live)
        Tag("h1", "Sessions")
        self.cards = raw(classes="cards")
        with Tag("div", classes="toolbar", role="search"):
            search("find", "Search sessions", self.on_words, hint="Search id or words…")
            modes = [("SAFE", "All modes"), *((m.name, f"{m.name} and above") for m in Mode if m)]
            choice("least", "Least mode", modes, self.on_mode, is_label_shown=False)
            checkbox("blocked", "Only with blocked turns", self.on_blocked)
        with Tag("div", classes="panel table-panel"):
            with Tag("table", classes="sessions"):
                Tag("caption", "Sessions, the newest first", classes="sr-only")
                raw(render("sessions", "head"), tag="thead")
                self.body = Tag("tbody")
            self.empty = raw(classes="empty")
        self.more = button("Show more", self.on_more, classes="more")
        await self.load()

    async def load(self) -> None:
        """Read the store anew and show what fits the filter."""
        words = bool(self.filter.words)
        query = SessionQuery(
            tenant=self.visitor.tenant,
            min_mode=int(self.filter.min_mode),
            limit=max(self.limit, _SEARCHED) if words else self.limit,
        )
        states = await self.context.controller.store.sessions(query)
        rows = [row for row in map(row_of, states) if self.filter.fits(row)]
        self.rows = {row.key: row for row in rows}
        self.body.clear()
        self.shown.clear()
        with self.body:
            for row in rows:
                self.shown[row.key] = raw(row_html(row, self.base), tag="tr")
        self.more.set_visibility(len(states) >= query.limit and not words)
        self._summarise()

    async def on_change(self, key: SessionKey) -> None:
        """Move a session that was just saved to the top of the table."""
        state = await self.context.controller.store.load(key)
        before = self.rows.get(key)
        row = None if state is None else row_of(state)
        if row is None or not self.filter.fits(row):
            self._drop(key)
        else:
            self._put(row)
            if row.mode >= _RISKY_FROM and (before is None or row.mode > before.mode):
                self.frame.say(f"Session {key.session_id} is now {row.mode.name}.")
        self._summarise()

    async def on_words(self, words: str) -> None:
        """Search."""
        self.filter = replace(self.filter, words=words[:_LONGEST_SEARCH])
        await self.load()

    async def on_mode(self, name: str) -> None:
        """Show this mode and the riskier ones."""
        self.filter = replace(self.filter, min_mode=Mode[name])
        await self.load()

    async def on_blocked(self, is_blocked: bool) -> None:
        """Show only sessions in which a turn was blocked."""
        self.filter = replace(self.filter, is_blocked=is_blocked)
        await self.load()

    async def on_more(self) -> None:
        """Show older sessions as well."""
        self.limit += PAGE
        await self.load()

    def _put(self, row: Row) -> None:
        self.rows[row.key] = row
        if row.key in self.shown:
            element = self.shown[row.key]
            element.content = str(row_html(row, self.base))
            element.move(self.body, 0)
        else:
            with self.body:
                element = raw(row_html(row, self.base), tag="tr").move(self.body, 0)
            self.shown[row.key] = element
        element.classes(remove="fresh-a fresh-b", add=f"fresh-{'ab'[row.turns % 2]}")

    def _drop(self, key: SessionKey) -> None:
        self.rows.pop(key, None)
        if (element := self.shown.pop(key, None)) is not None:
            element.delete()

    def _summarise(self) -> None:
        self.cards.content = str(summary_html(tuple(self.rows.values())))
        empty = render("sessions", "empty", self.base, self.filter != Filter())
        self.empty.content = "" if self.rows else str(empty)


def summary_html(rows: tuple[Row, ...]) -> Markup:
    """Return the numbers above the table, over the sessions that it shows."""
    counts = Counter(row.mode for row in rows)
    risky = sum(count for mode, count in counts.items() if mode >= _RISKY_FROM)
    numbers = (
        ("Sessions shown", len(rows), ""),
        ("SUSPECT or above", risky, "warn" if risky else ""),
        ("With blocked turns", sum(row.blocked > 0 for row in rows), ""),
        ("Turns judged", sum(row.turns for row in rows), ""),
    )
    modes = [(mode.name, counts[mode]) for mode in Mode]
    strip = mode_strip([(mode, counts[mode]) for mode in Mode])
    return render("sessions", "summary", numbers, modes, strip)
