"""The review queue: turns to be labelled, with shortcuts, bulk labels and measured precision."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup
from nicegui import ui
from nicegui.events import GenericEventArguments
from starlette.requests import Request

from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.queries import LabelFilter, Precision, TurnFilter, TurnQuery, TurnRow
from promptguard.service.auth import Scope
from promptguard.service.dashboard.access import (
    DashboardContext,
    Visitor,
    base_of,
    context_of,
    visitor_of,
)
from promptguard.service.dashboard.actions import put_label
from promptguard.service.dashboard.allowances import AllowancesPanel
from promptguard.service.dashboard.components import Frame, Tag, page_frame, raw, session_url
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
    with page_frame(request, "/review", "Review") as frame:
        Tag("h1", "Review")
        page = ReviewPage(
            context=context_of(request),
            visitor=visitor_of(request),
            frame=frame,
            base=base_of(request),
        )
        await page.build()


@dataclass(slots=True, kw_only=True)
class ReviewPage:
    """One visitor's queue: the newest turns that were interfered with or are doubtful."""

    context: DashboardContext
    visitor: Visitor
    frame: Frame
    base: str
    rows: tuple[TurnRow, ...] = ()
    numbers: ui.html = field(init=False)
    queue: ui.html = field(init=False)

    async def build(self) -> None:
        """Place everything."""
        self.numbers = raw()
        if not self.visitor.may(Scope.ADMIN):
            raw(notice("Your key may read, not label."))
        # The page's script turns keys and buttons into one event that names turns.
        with Tag("div", id="review", data_review="") as area:
            self.queue = raw()
        area.on("decide", self.on_decide, js_handler="(e) => emit(e.detail)")
        await self.load()
        await WhatIfPanel(
            context=self.context, visitor=self.visitor, frame=self.frame, base=self.base
        ).build()
        AllowancesPanel(
            context=self.context, visitor=self.visitor, frame=self.frame, base=self.base
        ).build()

    async def load(self) -> None:
        """Read queue and precision."""
        store, tenant = self.context.controller.store, self.visitor.tenant
        is_demo, _ = await demo_filter(self.context, self.visitor, "")
        starts = dict(self.context.controller.judge.weights.modes.starts())
        query = TurnQuery(
            tenant=tenant,
            turns=TurnFilter(is_demo=is_demo),
            label=LabelFilter.NONE,
            min_risk=starts[_DOUBTFUL_FROM],
            limit=QUEUE,
        )
        self.rows = await store.turns(query)
        self.numbers.content = str(precision_html(await store.precision(tenant)))
        may_label = self.visitor.may(Scope.ADMIN)
        self.queue.content = str(queue_html(self.rows, self.base, may_label=may_label))

    async def on_decide(self, event: GenericEventArguments) -> None:
        """Label the turns that the page names."""
        verdict, chosen = _decision(event.args)
        # Only turns that this page has shown: a client could name any.
        wanted = [row for row in self.rows if _name(row) in chosen]
        if verdict not in LABELS or not wanted:
            return
        try:
            done = [await self._label(row, verdict) for row in wanted]
        except PromptGuardError as error:
            self.numbers.content = str(notice(str(error), "bad"))
            return
        # A key may have lost its scope while the page was open.
        self.frame.say(f"{sum(done)} labelled: {LABELS[verdict]}.")
        await self.load()

    async def _label(self, row: TurnRow, verdict: str) -> bool:
        turn = row.turn
        label = SessionLabel(
            verdict=verdict,
            author=self.visitor.name or "local",
            timestamp=self.context.clock(),
            turn=turn.turn,
        )
        key = SessionKey(session_id=turn.session_id, tenant=turn.tenant)
        return await put_label(self.context, self.visitor, key, label)


def queue_html(rows: tuple[TurnRow, ...], base: str, *, may_label: bool) -> Markup:
    """Return the queue; every turn has its name, by which it is labelled."""
    shown = [
        (
            row,
            _name(row),
            session_url(base, row.turn.session_id) + f"#turn-{row.turn.turn}",
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
