"""One session: transcript, evidence, trajectory, explanation, replay, labels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ParamSpec

from markupsafe import Markup
from nicegui import background_tasks, ui
from starlette.requests import Request

from promptguard.computations import offloaded
from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import EvaluationError, InputError, PromptGuardError
from promptguard.protocols import SessionKey
from promptguard.service.auth import Scope
from promptguard.service.dashboard.actions import SessionActions
from promptguard.service.dashboard.allowances import AllowForm
from promptguard.service.dashboard.charts import Point, trajectory
from promptguard.service.dashboard.components import (
    Page,
    PageWork,
    Tag,
    button,
    choice,
    follow,
    page_frame,
    panel,
    raw,
    telling,
)
from promptguard.service.dashboard.templates import notice, render
from promptguard.service.dashboard.transcript import (
    TranscriptView,
    explanation_html,
    point_of,
    reached_html,
    replay_html,
    sentence_html,
    transcript_view,
    turn_html,
)
from promptguard.service.lanes import LONG_BODY_BYTES, LONG_SESSION_TURNS, Lane
from promptguard.service.verdicts import explanation_view, replay_view
from promptguard.state import SessionState

SHOWN = 40
P = ParamSpec("P")
# To explain means to judge the session again several times; longer ones wait for a click.
_EXPLAINED_AT_ONCE = 60
_MOST_REPLAYED = 500
_OTHERS = (
    ("", "Choose…"),
    ("strict", "Preset strict"),
    ("balanced", "Preset balanced"),
    ("permissive", "Preset permissive"),
    ("single", "Rules see each turn alone"),
    ("rules", "Without the embedded model"),
)


async def show_session(request: Request, id: str = "") -> None:  # noqa: A002  its name in the address
    """Build the page of the session `id`."""
    with page_frame(request, "/sessions", "Session") as page:
        key = SessionKey(session_id=id, tenant=page.tenant)
        state = None
        # An id that no store takes has no session.
        with suppress(InputError):
            state = await page.store.load(key)
        if state is None:
            ui.context.client.status_code = 404
            Tag("h1", "Session not found")
            raw(render("session", "not_found", page.base))
            return
        raw(render("session", "crumb", page.base))
        await SessionPage(page=page, key=key).build(state)


@dataclass(slots=True, kw_only=True)
class SessionPage:
    """One visitor's page of one session, updated as the session goes on."""

    page: Page
    key: SessionKey
    shown: int = SHOWN
    view: TranscriptView = field(default_factory=TranscriptView)
    state: SessionState = field(init=False)
    other: tuple[Point, ...] = ()
    drawn: dict[int, tuple[str, ui.html]] = field(default_factory=dict)
    work: PageWork = field(default_factory=PageWork)
    is_explaining: bool = False
    is_stale: bool = False
    is_built: asyncio.Event = field(default_factory=asyncio.Event)
    # Turns are placed one after the other, in order.
    showing: asyncio.Lock = field(default_factory=asyncio.Lock)
    head: ui.html = field(init=False)
    allow: AllowForm | None = None
    chart: ui.html = field(init=False)
    turns: Tag = field(init=False)
    earlier: Tag = field(init=False)
    why: ui.html = field(init=False)
    ask: Tag = field(init=False)
    reached: ui.html = field(init=False)
    replayed: ui.html = field(init=False)

    async def build(self, state: SessionState) -> None:
        """Place everything and begin to follow the session."""
        # Before the session is read, so that nothing saved in between is missed.
        follow(self.page, self.on_change)
        self.head = raw(classes="session-head")
        await SessionActions(page=self.page, key=self.key).build()
        if self.page.visitor.may(Scope.ADMIN):
            self.allow = AllowForm(page=self.page, key=self.key)
            self.allow.build()
        with panel("Risk, turn by turn", classes="wide"):
            self.chart = raw()
            raw(render("session", "legend"))
        with Tag("div", classes="columns"):
            with panel("Transcript", classes="transcript"):
                self.earlier = button("Show earlier turns", self.on_earlier, classes="small")
                self.turns = Tag("div", classes="turns")
            with Tag("aside", aria_label="Explanation and replay"):
                self._place_explanation()
                self._place_replay()
                raw(render("session", "glossary"))
        await self.show(state)
        self.is_built.set()
        if state.turn_count <= _EXPLAINED_AT_ONCE:
            self.explain_soon()

    async def on_change(self, key: SessionKey | None) -> None:
        """Show what was added to the session."""
        if key not in (None, self.key):
            return
        await self.is_built.wait()
        state = await self.page.store.load(self.key)
        if state is None:
            self.head.content = str(notice("This session was deleted.", "bad"))
            return
        is_new = state.turn_count != self.state.turn_count
        await self.show(state)
        if is_new:
            self.page.say(f"Turn {state.turn_count}: {state.mode.name}.")
            if state.turn_count <= _EXPLAINED_AT_ONCE:
                self.explain_soon()
            else:
                # What is explained is an earlier turn now.
                self.ask.set_visibility(True)

    async def show(self, state: SessionState) -> None:
        """Show the session as it is now."""
        async with self.showing:
            await self._show(state)

    async def _show(self, state: SessionState) -> None:
        self.state = state
        lane = Lane.LONG if state.turn_count > LONG_SESSION_TURNS else Lane.SHORT
        entries = await self.page.store.transcript(self.key)
        try:
            async with self.page.call(lane):
                self.view = await asyncio.to_thread(offloaded, transcript_view, entries, self.shown)
        except EvaluationError as error:
            self.head.content = str(notice(str(error), "bad"))
            return
        self.head.content = str(self._head_html())
        if self.allow is not None:
            self.allow.show(self.view.flagged)
        self.reached.content = str(reached_html(state.entered))
        await self._draw_chart()
        await self._draw_turns()

    def explain_soon(self) -> None:
        """Explain in the background; a change meanwhile has it explained once more."""
        # Turns may come faster than they are explained; the newest is explained when it is done.
        if self.is_explaining:
            self.is_stale = True
            return
        self.is_explaining = True
        explaining = self.work.run("explain", self._explain())
        background_tasks.create(explaining, name="explain a session")

    async def on_explain(self) -> None:
        """Explain because the visitor asks for it."""
        if self._may_read:
            self.explain_soon()

    async def on_earlier(self) -> None:
        """Show earlier turns as well."""
        if not self._may_read:
            return
        async with self.showing:
            self.shown += SHOWN
            self.turns.clear()
            self.drawn.clear()
            with telling(self.head):
                await self._show(self.state)

    async def on_replay(self, name: str) -> None:
        """Judge the session under another configuration and show the difference."""
        if not self._may_read:
            return
        if not name:
            self.work.end("replay")
            self.other, self.replayed.content = (), ""
            await self._draw_chart()
            return
        if self.state.turn_count > _MOST_REPLAYED:
            advice = f"Sessions of more than {_MOST_REPLAYED} turns are not replayed on a page; "
            self.replayed.content = str(notice(advice + "use `promptguard replay`."))
            return
        self.replayed.content = str(notice("Judging the session again…"))
        await self.work.run("replay", self._replay(name))

    @property
    def _may_read(self) -> bool:
        # The page may be open longer than the visit, or than its key is in force.
        return self.page.visitor.may(Scope.READ) and self.page.tenant == self.key.tenant

    async def _replay(self, name: str) -> None:
        controller, key = self.page.context.controller, self.key
        config = other_config(controller.config, name)
        with telling(self.replayed):
            async with self.page.call(Lane.HEAVY):
                pairs = await controller.replay(key.session_id, config, tenant=key.tenant)
            self.other = tuple(point_of(theirs) for _, theirs in pairs)
            replay = replay_view(key.session_id, pairs)
            self.replayed.content = str(replay_html(replay, dict(_OTHERS)[name]))
            await self._draw_chart()

    def _place_explanation(self) -> None:
        with panel("Why", classes="why"):
            self.why = raw(render("parts", "quiet", "Not explained yet."))
            self.ask = button("Explain the last turn", self.on_explain, classes="small")
            Tag("h3", "First reached")
            self.reached = raw()

    def _place_replay(self) -> None:
        with panel("Replay under another configuration"):
            choice("other", "Configuration", _OTHERS, self.on_replay, is_label_shown=False)
            self.replayed = raw().props("aria-live=polite")

    async def _explain(self) -> None:
        self.ask.set_visibility(False)
        if not self.state.turn_count:
            self.is_explaining = False
            return
        controller, key = self.page.context.controller, self.key
        try:
            async with self.page.call(Lane.HEAVY):
                explanation = await controller.explain(key.session_id, tenant=key.tenant)
            self.why.content = str(explanation_html(explanation_view(key.session_id, explanation)))
        except PromptGuardError as error:
            self.why.content = str(notice(str(error), "bad"))
            self.ask.set_visibility(True)
        self.is_explaining = False
        if self.is_stale:
            self.is_stale = False
            self.explain_soon()

    async def _drawn(self, work: Callable[P, Markup], *args: P.args, **kwargs: P.kwargs) -> Markup:
        """Return what a long call of `work` draws, or why there is no room for one."""
        try:
            async with self.page.call(Lane.LONG):
                return await asyncio.to_thread(offloaded, work, *args, **kwargs)
        except EvaluationError as error:
            return notice(str(error), "bad")

    async def _draw_chart(self) -> None:
        starts = self.page.context.controller.judge.weights.modes.starts()
        points, entered = self.view.points, self.state.entered
        # A short one is drawn sooner than it is sent to a thread and back.
        if len(points) > LONG_SESSION_TURNS:
            drawn = await self._drawn(trajectory, points, starts, entered, other=self.other)
        else:
            drawn = trajectory(points, starts, entered, other=self.other)
        self.chart.content = str(drawn)

    async def _draw_turns(self) -> None:
        latest = self.view.latest
        self.earlier.set_visibility(self.view.turns > len(latest))
        for card in latest:
            if len(card.user or "") > LONG_BODY_BYTES:
                wanted = await self._drawn(turn_html, card)
            else:
                wanted = await asyncio.to_thread(turn_html, card)
            known, element = self.drawn.get(card.turn, ("", None))
            if element is None:
                with self.turns:
                    element = raw(wanted, tag="article", classes="turn")
                    element.props(f"id=turn-{card.turn}")
            elif wanted != known:
                # Only what changed is sent to the browser.
                element.content = str(wanted)
            self.drawn[card.turn] = (wanted, element)

    def _head_html(self) -> Markup:
        is_current = self.state.config_hash == config_hash(self.page.context.controller.config)
        worst = self.view.worst
        sentence = sentence_html(self.state, worst)
        return render("session", "head", self.state, sentence, worst, is_current)


def other_config(config: ControllerConfig, name: str) -> ControllerConfig:
    """Return the configuration behind one of the choices on the page."""
    if name == "single":
        return config.model_copy(update={"use_temporal": False})
    if name == "rules":
        return config.model_copy(update={"use_model": False})
    return config.model_copy(update={"preset": name, "false_positive_budget": None})
