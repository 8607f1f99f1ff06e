"""All sessions: search, filters, sorting and paging in the store, the whole view in the address."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from markupsafe import Markup
from nicegui import background_tasks, ui
from starlette.requests import Request

from promptguard.protocols import SessionKey, SessionQuery
from promptguard.queries import LabelFilter, SessionListPage, SessionRow, SessionSort, TurnFilter
from promptguard.service.auth import Scope
from promptguard.service.dashboard.charts import sparkline
from promptguard.service.dashboard.components import (
    Page,
    Tag,
    button,
    follow,
    page_frame,
    raw,
    session_url,
    telling,
)
from promptguard.service.dashboard.filters import PAGE, Demo, ListFilter
from promptguard.service.dashboard.overview import demo_filter
from promptguard.service.dashboard.templates import action_word, render
from promptguard.verdict import Action, Mode

_REFRESH_S = 1.0
_REMOVED_AT_ONCE = 200
_COLUMNS = (
    ("", "Mode", ""),
    ("", "Session, most severe message and why", ""),
    (SessionSort.PEAK, "Peak risk", "num"),
    (SessionSort.RISK, "Accumulated", "num"),
    (SessionSort.TURNS, "Turns", "num"),
    (SessionSort.BLOCKED, "Blocked", "num"),
    (SessionSort.UPDATED, "Updated", ""),
)
LABELS = {"attack": "True attack", "false_alarm": "False alarm"}


async def show_sessions(request: Request) -> None:
    """Build the page."""
    with page_frame(request, "/sessions", "Sessions") as page:
        Tag("h1", "Sessions")
        await SessionsPage(page=page, filter=ListFilter.from_params(request.query_params)).build()


@dataclass(slots=True, kw_only=True)
class SessionsPage:
    """One visitor's list, read again when something it might show was saved."""

    page: Page
    filter: ListFilter
    is_refreshing: bool = False
    bundled: Tag = field(init=False)
    remark: ui.html = field(init=False)
    body: ui.html = field(init=False)

    async def build(self) -> None:
        """Place everything and begin to follow the store."""
        # Before the first reading, so that nothing saved in between is missed.
        follow(self.page, self.on_change)
        raw(form_html(self.filter, self.page.base))
        with Tag("div", classes="row bundled") as self.bundled:
            self.remark = raw(tag="span")
            if self.page.visitor.may(Scope.ADMIN):
                button("Remove the demo sessions", self.on_remove_demo, classes="small")
        self.body = raw(classes="sessions-body")
        await self.load()

    async def load(self) -> None:
        """Read the store and show what fits the filter."""
        page, chosen = self.page, self.filter
        is_demo, hidden = await demo_filter(page.store, page.tenant, chosen.demo)
        listed = await page.store.page(chosen.query(page.tenant, is_demo=is_demo))
        self.bundled.set_visibility(hidden > 0 or any(row.is_demo for row in listed.rows))
        show, hide = (chosen.url(page.base, demo=demo.value) for demo in (Demo.SHOW, Demo.HIDE))
        self.remark.content = str(render("sessions", "bundled", hidden, show, hide))
        self.body.content = str(list_html(listed, chosen, page.base))

    async def on_change(self, _: SessionKey | None) -> None:
        """Read the store again soon; many changes at once are one reading."""
        if not self.is_refreshing:
            self.is_refreshing = True
            background_tasks.create(self._refresh(), name="refresh the list")

    async def on_remove_demo(self) -> None:
        """Delete the bundled conversations."""
        page, tenant = self.page, self.page.tenant
        if not page.may_change("delete", "demo", tenant):
            return
        audit, author = page.context.audit, page.visitor.name
        query = SessionQuery(tenant=tenant, turns=TurnFilter(is_demo=True), limit=_REMOVED_AT_ONCE)
        with telling(self.body):
            with audit.action(author, "delete", "demo", done="deleted", tenant=tenant):
                # Read again from the start each time: what was deleted has moved the rest up.
                while states := await page.store.sessions(query):
                    for state in states:
                        key = SessionKey(session_id=state.session_id, tenant=state.tenant)
                        await page.store.delete(key)
            page.say("The demo sessions were removed.")
            await self.load()

    async def _refresh(self) -> None:
        await asyncio.sleep(_REFRESH_S)
        # Before reading: what is saved from here on asks for another reading.
        self.is_refreshing = False
        with telling(self.body):
            await self.load()


def form_html(chosen: ListFilter, base: str) -> Markup:
    """Return the search form with what is chosen."""
    modes = [("", "All modes"), *((m.name, f"{m.name} and above") for m in Mode if m)]
    actions = [("", "Any action"), *((a.value, action_word(a).capitalize()) for a in Action)]
    labels = [
        (LabelFilter.ANY.value, "Any label"),
        (LabelFilter.NONE.value, "Not labelled"),
        *LABELS.items(),
    ]
    demos = [
        (Demo.AUTO.value, "Demo: only while alone"),
        (Demo.HIDE.value, "Demo: hide"),
        (Demo.SHOW.value, "Demo: show"),
        (Demo.ONLY.value, "Demo: only"),
    ]
    return render("sessions", "form", chosen, base, modes, actions, labels, demos)


def list_html(page: SessionListPage, chosen: ListFilter, base: str) -> Markup:
    """Return the table with its head, the pages before and after, and the exports."""
    columns = [
        (name, kind, chosen.sorted_url(base, sort) if isinstance(sort, SessionSort) else "",
         _direction(chosen, sort))
        for sort, name, kind in _COLUMNS
    ]  # fmt: skip
    first = (chosen.page - 1) * PAGE
    pages = {
        "first": first + 1 if page.rows else 0,
        "last": first + len(page.rows),
        "before": chosen.url(base, page=chosen.page - 1) if chosen.page > 1 else "",
        "after": chosen.url(base, page=chosen.page + 1)
        if first + len(page.rows) < page.total
        else "",
    }
    rows = Markup().join(row_html(row, base) for row in page.rows)
    return render("sessions", "table", columns, rows, page.total, pages, chosen, base)


def row_html(row: SessionRow, base: str) -> Markup:
    """Return one session as a row of the table."""
    state = row.state
    url = session_url(base, state.session_id, row.worst.turn if row.worst else None)
    line = sparkline([record.turn_risk for record in state.recent], state.mode, width=84)
    return render("sessions", "row", row, url, line, LABELS)


def _direction(chosen: ListFilter, sort: str) -> str:
    if sort != (chosen.sort or SessionSort.UPDATED):
        return ""
    return "ascending" if chosen.order == "up" else "descending"
