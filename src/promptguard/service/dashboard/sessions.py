"""All sessions: a live table with filters and search."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nicegui import ui
from starlette.requests import Request

from promptguard.protocols import SessionKey, SessionQuery
from promptguard.service.dashboard.access import Visitor
from promptguard.service.dashboard.charts import mode_strip
from promptguard.service.dashboard.controls import Tag, button, choice, raw, search, tick
from promptguard.service.dashboard.desk import Desk, base_of, desk_of, visitor_of
from promptguard.service.dashboard.layout import Frame, page_frame
from promptguard.service.dashboard.live import follow
from promptguard.service.dashboard.markup import esc
from promptguard.service.dashboard.rows import Row, row_html, row_of
from promptguard.state import Mode

PAGE = 100
_SEARCHED = 400
_LONGEST_SEARCH = 200
_LOUD = Mode.SUSPECT
_HEAD = (
    '<tr><th scope="col">Mode</th><th scope="col">Session and last message</th>'
    '<th scope="col">Risk, last ten turns</th><th scope="col" class="num">Turns</th>'
    '<th scope="col" class="num">Blocked</th><th scope="col">Updated</th></tr>'
)


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
            desk=desk_of(request), visitor=visitor_of(request), frame=frame, base=base_of(request)
        )
        await table.build()


@dataclass(slots=True, kw_only=True)
class SessionsTable:
    """The table of one visitor: what it shows and how it keeps up."""

    desk: Desk
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
        follow(self.desk, self.visitor, self.on_change, self.frame.show_live)
        Tag("h1", "Sessions")
        self.cards = raw(classes="cards")
        with Tag("div", classes="toolbar", role="search"):
            search("find", "Search sessions", self.on_words, hint="Search id or words…")
            modes = [("SAFE", "All modes"), *((m.name, f"{m.name} and above") for m in Mode if m)]
            choice("least", "Least mode", modes, self.on_mode, is_label_shown=False)
            tick("blocked", "Only with blocked turns", self.on_blocked)
        with Tag("div", classes="panel table-panel"):
            with Tag("table", classes="sessions"):
                Tag("caption", "Sessions, the newest first", classes="sr-only")
                raw(_HEAD, tag="thead")
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
        states = await self.desk.controller.store.sessions(query)
        found = [row for row in map(row_of, states) if self.filter.fits(row)]
        self.rows = {row.key: row for row in found}
        self.body.clear()
        self.shown.clear()
        with self.body:
            for row in found:
                self.shown[row.key] = raw(row_html(row, self.base), tag="tr")
        self.more.set_visibility(len(states) >= query.limit and not words)
        self._summarise()

    async def on_change(self, key: SessionKey) -> None:
        """Show a session that was saved just now at the top of the table."""
        state = await self.desk.controller.store.load(key)
        before = self.rows.get(key)
        row = None if state is None else row_of(state)
        if row is None or not self.filter.fits(row):
            self._drop(key)
        else:
            self._put(row)
            if row.mode >= _LOUD and (before is None or row.mode > before.mode):
                self.frame.say(f"Session {key.session_id} is now {row.mode.name}.")
        self._summarise()

    async def on_words(self, words: str) -> None:
        """Search."""
        self.filter = Filter(
            min_mode=self.filter.min_mode,
            words=words[:_LONGEST_SEARCH],
            is_blocked=self.filter.is_blocked,
        )
        await self.load()

    async def on_mode(self, name: str) -> None:
        """Show this mode and the riskier ones."""
        self.filter = Filter(
            min_mode=Mode[name], words=self.filter.words, is_blocked=self.filter.is_blocked
        )
        await self.load()

    async def on_blocked(self, is_blocked: bool) -> None:
        """Show only sessions in which a turn was blocked."""
        self.filter = Filter(
            min_mode=self.filter.min_mode, words=self.filter.words, is_blocked=is_blocked
        )
        await self.load()

    async def on_more(self) -> None:
        """Show older sessions as well."""
        self.limit += PAGE
        await self.load()

    def _put(self, row: Row) -> None:
        self.rows[row.key] = row
        if row.key in self.shown:
            element = self.shown[row.key]
            element.content = row_html(row, self.base)
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
        self.cards.content = summary_html(tuple(self.rows.values()))
        is_filtered = self.filter != Filter()
        self.empty.content = "" if self.rows else empty_html(self.base, is_filtered=is_filtered)


def summary_html(rows: tuple[Row, ...]) -> str:
    """Return the numbers above the table, over the sessions that it shows."""
    counts = Counter(row.mode for row in rows)
    loud = sum(count for mode, count in counts.items() if mode >= _LOUD)
    numbers = (
        ("Sessions shown", len(rows), ""),
        ("SUSPECT or above", loud, "warn" if loud else ""),
        ("With blocked turns", sum(row.blocked > 0 for row in rows), ""),
        ("Turns judged", sum(row.turns for row in rows), ""),
    )
    cards = "".join(
        f'<div class="card {kind}"><span>{name}</span><b class="num">{value:,}</b></div>'
        for name, value, kind in numbers
    )
    strip = mode_strip([(mode, counts[mode]) for mode in Mode])
    legend = "".join(
        f'<li class="m{int(mode)}"><i aria-hidden="true"></i>{mode.name} {counts[mode]}</li>'
        for mode in Mode
    )
    return f'{cards}<div class="card wide"><span>By mode</span>{strip}<ul>{legend}</ul></div>'


def empty_html(base: str, *, is_filtered: bool) -> str:
    """Return what stands in the place of an empty table."""
    if is_filtered:
        return "<p>No session fits this search.</p>"
    return (
        "<p><b>No sessions yet.</b> Point an OpenAI client at this service, post turns to "
        f'<code>/v1/guard/turn</code>, or try the <a href="{esc(base)}/playground">playground</a>.'
        "</p>"
    )
