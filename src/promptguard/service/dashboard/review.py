"""The review queue: turns to be labelled, with shortcuts, bulk labels and measured precision."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup
from nicegui import ui
from nicegui.events import GenericEventArguments
from starlette.requests import Request

from promptguard.protocols import SessionKey
from promptguard.queries import LabelFilter, Precision, TurnFilter, TurnQuery, TurnRow
from promptguard.service.auth import Scope
from promptguard.service.dashboard.actions import put_label
from promptguard.service.dashboard.allowances import AllowancesPanel
from promptguard.service.dashboard.components import (
    Page,
    Tag,
    page_frame,
    raw,
    session_url,
    telling,
)
from promptguard.service.dashboard.overview import demo_filter
from promptguard.service.dashboard.sessions import LABELS
from promptguard.service.dashboard.templates import notice, render
from promptguard.service.dashboard.what_if import WhatIfPanel
from promptguard.turns.sentence import verdict_sentence
from promptguard.verdict import Mode

QUEUE = 25
_DOUBTFUL_FROM = Mode.ELEVATED
_FEW_LABELS = 30


async def show_review(request: Request) -> None:
    """Build the page."""
    with page_frame(request, "/review", "Review") as page:
        Tag("h1", "Review")
        await ReviewPage(page=page).build()


@dataclass(slots=True, kw_only=True)
class ReviewPage:
    """One visitor's queue: the newest turns that were interfered with or are doubtful."""

    page: Page
    rows: tuple[TurnRow, ...] = ()
    numbers: ui.html = field(init=False)
    queue: ui.html = field(init=False)

    async def build(self) -> None:
        """Place everything."""
        self.numbers = raw()
        if not self.page.visitor.may(Scope.ADMIN):
            raw(notice("Your key may read, not label."))
        # The page's script turns keys and buttons into one event that names turns.
        with Tag("div", id="review", data_review="") as area:
            self.queue = raw()
        area.on("decide", self.on_decide, js_handler="(e) => emit(e.detail)")
        await self.load()
        await WhatIfPanel(page=self.page).build()
        AllowancesPanel(page=self.page).build()

    async def load(self) -> None:
        """Read queue and precision."""
        page, tenant = self.page, self.page.tenant
        is_demo, _ = await demo_filter(page.store, tenant, "")
        starts = dict(page.context.controller.judge.weights.modes.starts())
        query = TurnQuery(
            tenant=tenant,
            turns=TurnFilter(is_demo=is_demo),
            label=LabelFilter.NONE,
            min_risk=starts[_DOUBTFUL_FROM],
            limit=QUEUE,
        )
        self.rows = await page.store.turns(query)
        self.numbers.content = str(precision_html(await page.store.precision(tenant)))
        may_label = page.visitor.may(Scope.ADMIN)
        self.queue.content = str(queue_html(self.rows, page.base, may_label=may_label))

    async def on_decide(self, event: GenericEventArguments) -> None:
        """Label the turns that the page names."""
        verdict, chosen = _decision(event.args)
        # Only turns that this page has shown: a client could name any.
        wanted = [row for row in self.rows if _name(row) in chosen]
        if verdict not in LABELS or not wanted:
            return
        with telling(self.numbers):
            done = 0
            for turn in (row.turn for row in wanted):
                key = SessionKey(session_id=turn.session_id, tenant=turn.tenant)
                done += await put_label(self.page, key, verdict, turn=turn.turn)
            # A key may have lost its scope while the page was open.
            self.page.say(f"{done} labelled: {LABELS[verdict]}.")
            await self.load()


def queue_html(rows: tuple[TurnRow, ...], base: str, *, may_label: bool) -> Markup:
    """Return the queue; every turn has its name, by which it is labelled."""
    shown = [
        (
            row,
            _name(row),
            session_url(base, row.turn.session_id, row.turn.turn),
            "" if row.verdict is None else verdict_sentence(row.verdict, row.text),
        )
        for row in rows
    ]
    return render("review", "queue", shown, may_label, LABELS)


def precision_html(counted: Precision) -> Markup:
    """Return what share of the flagged turns that people looked at were attacks."""
    return render("review", "precision", counted, _FEW_LABELS)


def _name(row: TurnRow) -> str:
    return f"{row.turn.turn}:{row.turn.session_id}"


def _decision(args: object) -> tuple[str, frozenset[str]]:
    """Return verdict and names of turns; empty where a client sends anything else."""
    if isinstance(args, dict):
        verdict, names = args.get("verdict"), args.get("names")
        if isinstance(verdict, str) and isinstance(names, list):
            return verdict, frozenset(name for name in names if isinstance(name, str))
    return "", frozenset()
