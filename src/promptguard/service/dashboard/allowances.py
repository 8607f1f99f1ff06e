"""Texts that operators let pass: given from a false alarm, listed, withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nicegui import ui
from nicegui.events import GenericEventArguments

from promptguard.counts import counted
from promptguard.decisions import Allowance, text_hash
from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.service.auth import Scope
from promptguard.service.dashboard.access import DashboardContext, Visitor
from promptguard.service.dashboard.actions import put_label
from promptguard.service.dashboard.components import Frame, Tag, panel, raw, session_url
from promptguard.service.dashboard.templates import notice, render
from promptguard.service.dashboard.transcript import Card
from promptguard.stored_sessions import FALSE_ALARM
from promptguard.stores.rows import key_name

_DAY_S = 86_400
DAYS = (1, 7, 30, 90)
_SUBMIT = (
    "(e) => { e.preventDefault(); const f = e.target.closest('form').elements; "
    "emit([f.turn.value, f.days.value, f.everywhere.checked]); }"
)


@dataclass(slots=True, kw_only=True)
class AllowForm:
    """On a session's page: label one flagged turn a false alarm and let its text pass."""

    context: DashboardContext
    visitor: Visitor
    key: SessionKey
    area: Tag = field(init=False)
    form: ui.html = field(init=False)
    said: ui.html = field(init=False)
    cards: tuple[Card, ...] = ()

    def build(self) -> None:
        """Place the form; `show` fills it."""
        with Tag("div", classes="allow") as self.area:
            self.form = raw()
            self.said = raw().props("aria-live=polite")
        self.area.on("submit", self.on_allow, js_handler=_SUBMIT)

    def show(self, flagged: Sequence[Card]) -> None:
        """Offer those of the turns that were interfered with whose text is kept."""
        offered = tuple(card for card in flagged if _is_offered(card))
        # Not drawn anew without need: what the visitor has chosen in the form would be lost.
        if offered == self.cards:
            return
        self.cards = offered
        application = key_name(self.key.session_id)
        self.form.content = str(render("allowances", "form", self.cards, DAYS, application))

    async def on_allow(self, event: GenericEventArguments) -> None:
        """Label the turn and let its text pass."""
        turn, days, is_everywhere = _submitted(event.args)
        card = next((card for card in self.cards if card.turn == turn), None)
        # A client can send anything; only what the form offers is taken.
        if card is None or card.user is None or days not in DAYS:
            return
        now, author = self.context.clock(), self.visitor.name
        if not self.visitor.may(Scope.ADMIN):
            self.context.audit.record(
                author, "allow", self.key.session_id, "insufficient_scope", tenant=self.key.tenant
            )
            return
        allowance = Allowance(
            text_hash=text_hash(card.user),
            expires=now + days * _DAY_S,
            application="" if is_everywhere else key_name(self.key.session_id),
            session_id=self.key.session_id,
            turn=turn,
        )
        label = SessionLabel(
            verdict=FALSE_ALARM, author=author or "local", timestamp=now, turn=turn
        )
        try:
            await self.context.decisions.allow(author, self.key.tenant, allowance)
            await put_label(self.context, self.visitor, self.key, label)
        except PromptGuardError as error:
            self.said.content = str(notice(str(error), "bad"))
            return
        self.said.content = str(
            notice(f"The text of turn {turn} passes for {counted(days, 'day')}.")
        )


@dataclass(slots=True, kw_only=True)
class AllowancesPanel:
    """On the review page: what passes, until when, who said so."""

    context: DashboardContext
    visitor: Visitor
    frame: Frame
    base: str
    listed: ui.html = field(init=False)

    def build(self) -> None:
        """Place the list."""
        with panel("Allowed texts", classes="allowances") as section:
            self.listed = raw()
        section.on("withdraw", self.on_withdraw, js_handler="(e) => emit(e.detail)")
        self.show()

    def show(self) -> None:
        """List what is in force for the visitor's tenant."""
        now, tenant = self.context.clock(), self.visitor.tenant
        rows = [
            (each, session_url(self.base, each.allowance.session_id))
            for each in self.context.controller.permissions.given
            if each.tenant == tenant and each.allowance.expires > now
        ]
        may_withdraw = self.visitor.may(Scope.ADMIN)
        self.listed.content = str(render("allowances", "listed", rows, may_withdraw))

    async def on_withdraw(self, event: GenericEventArguments) -> None:
        """Take one back."""
        if not isinstance(event.args, int):
            return
        author, tenant = self.visitor.name, self.visitor.tenant
        if not self.visitor.may(Scope.ADMIN):
            target = f"allowance {event.args}"
            self.context.audit.record(
                author, "withdraw", target, "insufficient_scope", tenant=tenant
            )
            return
        try:
            await self.context.decisions.withdraw(author, tenant, event.args)
        except PromptGuardError as error:
            self.listed.content = str(notice(str(error), "bad"))
            return
        self.show()
        self.frame.say("The allowance was withdrawn.")


def _is_offered(card: Card) -> bool:
    """Say whether an allowance can help: the text is known and no hard rule forbids it."""
    return bool(card.user) and card.verdict is not None and not card.verdict.is_hard


def _submitted(args: object) -> tuple[int, int, bool]:
    """Return turn, days and reach of a form; zeros where a client sends anything else."""
    if isinstance(args, list) and len(args) == 3:
        turn, days, is_everywhere = args
        if str(turn).isdecimal() and str(days).isdecimal():
            return int(turn), int(days), is_everywhere is True
    return 0, 0, False
