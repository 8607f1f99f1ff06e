"""One session: transcript, evidence, trajectory, explanation, replay, labels."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nicegui import background_tasks, ui
from starlette.requests import Request

from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey
from promptguard.service.dashboard.access import Visitor
from promptguard.service.dashboard.cards import Card, cards_of, points_of
from promptguard.service.dashboard.charts import Point, trajectory
from promptguard.service.dashboard.controls import Tag, button, choice, panel, raw
from promptguard.service.dashboard.desk import Desk, base_of, desk_of, visitor_of
from promptguard.service.dashboard.explanation import explanation_html, reached_html, replay_html
from promptguard.service.dashboard.labels import LabelPanel
from promptguard.service.dashboard.layout import Frame, page_frame
from promptguard.service.dashboard.live import follow
from promptguard.service.dashboard.markup import esc, mode_chip, moment, notice, risk_text
from promptguard.service.dashboard.transcript import turn_html
from promptguard.state import SessionState

SHOWN = 40
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


async def show_session(request: Request, session_id: str) -> None:
    """Build the page."""
    desk, visitor = desk_of(request), visitor_of(request)
    key = SessionKey(session_id=session_id, tenant=visitor.tenant)
    with page_frame(request, "/", "Session") as frame:
        follows = SessionPage(desk=desk, visitor=visitor, frame=frame, key=key)
        state = await desk.controller.store.load(key) if session_id else None
        if state is None:
            ui.context.client.status_code = 404
            Tag("h1", "Session not found")
            home = esc(base_of(request)) + "/"
            raw(f'<p>It may have been deleted. <a href="{home}">All sessions</a></p>')
            return
        raw(f'<p class="crumb"><a href="{esc(base_of(request))}/">Sessions</a> /</p>')
        await follows.build(state)


@dataclass(slots=True, kw_only=True)
class SessionPage:
    """What one visitor sees of one session, and how it keeps up."""

    desk: Desk
    visitor: Visitor
    frame: Frame
    key: SessionKey
    shown: int = SHOWN
    cards: tuple[Card, ...] = ()
    state: SessionState = field(init=False)
    other: tuple[Point, ...] = ()
    drawn: dict[int, tuple[str, ui.html]] = field(default_factory=dict)
    is_explaining: bool = False
    is_stale: bool = False
    head: ui.html = field(init=False)
    chart: ui.html = field(init=False)
    turns: Tag = field(init=False)
    earlier: Tag = field(init=False)
    why: ui.html = field(init=False)
    ask: Tag = field(init=False)
    reached: ui.html = field(init=False)
    replayed: ui.html = field(init=False)

    async def build(self, state: SessionState) -> None:
        """Place everything and begin to follow the session."""
        follow(self.desk, self.visitor, self.on_change, self.frame.show_live)
        self.head = raw(classes="session-head")
        with panel("Risk, turn by turn", classes="wide"):
            self.chart = raw()
        with Tag("div", classes="columns"):
            with panel("Transcript", classes="transcript"):
                self.earlier = button("Show earlier turns", self.on_earlier, classes="small")
                self.turns = Tag("div", classes="turns")
            with Tag("aside", aria_label="Explanation, replay and labels"):
                self._place_explanation()
                self._place_replay()
                labels = LabelPanel(desk=self.desk, visitor=self.visitor, key=self.key)
                await labels.build()
        await self.show(state)
        if state.turn_count <= _EXPLAINED_AT_ONCE:
            self.explain_soon()

    async def on_change(self, key: SessionKey) -> None:
        """Show what was added to the session."""
        if key != self.key:
            return
        state = await self.desk.controller.store.load(key)
        if state is None:
            self.head.content = notice("This session was deleted.", kind="bad")
            return
        is_new = state.turn_count != self.state.turn_count
        await self.show(state)
        if is_new:
            self.frame.say(f"Turn {state.turn_count}: {state.mode.name}.")
            if state.turn_count <= _EXPLAINED_AT_ONCE:
                self.explain_soon()

    async def show(self, state: SessionState) -> None:
        """Show the session as it stands."""
        self.state = state
        entries = await self.desk.controller.store.transcript(self.key)
        self.cards = await asyncio.to_thread(cards_of, entries)
        self.head.content = self._head_html()
        self.reached.content = reached_html([(e.turn, e.mode) for e in state.entered if e.mode])
        self._draw_chart()
        await self._draw_turns()

    def explain_soon(self) -> None:
        """Explain in the background; a change meanwhile has it explained once more."""
        if self.is_explaining:
            self.is_stale = True
            return
        self.is_explaining = True
        background_tasks.create(self._explain(), name="explain a session")

    async def on_explain(self) -> None:
        """Explain because the visitor asks for it."""
        self.explain_soon()

    async def on_earlier(self) -> None:
        """Show earlier turns as well."""
        self.shown += SHOWN
        self.turns.clear()
        self.drawn.clear()
        await self._draw_turns()

    async def on_replay(self, name: str) -> None:
        """Judge the session under another configuration and show the difference."""
        if not name:
            self.other, self.replayed.content = (), ""
            self._draw_chart()
            return
        if self.state.turn_count > _MOST_REPLAYED:
            said = f"Sessions of more than {_MOST_REPLAYED} turns are not replayed on a page; "
            self.replayed.content = notice(said + "use `promptguard replay`.")
            return
        self.replayed.content = notice("Judging the session again…")
        config = other_config(self.desk.controller.config, name)
        try:
            pairs = await self.desk.controller.replay(
                self.key.session_id, config, tenant=self.key.tenant
            )
        except PromptGuardError as error:
            self.replayed.content = notice(str(error), kind="bad")
            return
        self.other = tuple(
            Point(turn=v.turn, risk=v.risk, mode=v.mode, action=v.action) for _, v in pairs
        )
        self.replayed.content = replay_html(pairs, dict(_OTHERS)[name])
        self._draw_chart()

    def _place_explanation(self) -> None:
        with panel("Why", classes="why"):
            self.why = raw('<p class="quiet">Not explained yet.</p>')
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
        try:
            found = await self.desk.controller.explain(self.key.session_id, tenant=self.key.tenant)
            self.why.content = explanation_html(found)
        except PromptGuardError as error:
            self.why.content = notice(str(error), kind="bad")
        self.is_explaining = False
        if self.is_stale:
            self.is_stale = False
            self.explain_soon()

    def _draw_chart(self) -> None:
        starts = self.desk.controller.judge.weights.modes.starts()
        self.chart.content = trajectory(
            points_of(self.cards), starts, self.state.entered, other=self.other
        )

    async def _draw_turns(self) -> None:
        latest = self.cards[-self.shown :]
        self.earlier.set_visibility(len(self.cards) > len(latest))
        for card in latest:
            wanted = await asyncio.to_thread(turn_html, card)
            known, element = self.drawn.get(card.turn, ("", None))
            if element is None:
                with self.turns:
                    element = raw(wanted, tag="article", classes="turn")
            elif wanted != known:
                element.content = wanted
            self.drawn[card.turn] = (wanted, element)

    def _head_html(self) -> str:
        state = self.state
        is_current = state.config_hash == config_hash(self.desk.controller.config)
        old = "" if is_current else notice("Last judged under other settings than today's.")
        rewritten = (
            notice("The client changed or dropped earlier messages of this session.", kind="bad")
            if state.history_rewrites
            else ""
        )
        return (
            f"<h1>{esc(state.session_id)}</h1>"
            f'<p class="facts">{mode_chip(state.mode)}<b class="num">'
            f"{risk_text(state.accumulated_risk)}</b>"
            f"<span>peak {risk_text(state.profile.peak_risk)}</span>"
            f"<span>{state.turn_count} turns</span><span>{state.profile.blocked} blocked</span>"
            f"<span>last turn {moment(state.updated)}</span></p>{old}{rewritten}"
        )


def other_config(config: ControllerConfig, name: str) -> ControllerConfig:
    """Return the configuration that a choice on the page stands for."""
    if name == "single":
        return config.model_copy(update={"use_temporal": False})
    if name == "rules":
        return config.model_copy(update={"use_model": False})
    return config.model_copy(update={"preset": name, "false_positive_budget": None})
