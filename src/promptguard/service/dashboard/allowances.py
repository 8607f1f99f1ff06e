"""Texts that operators let pass: given from a false alarm, listed, withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nicegui import ui
from nicegui.events import GenericEventArguments

from promptguard.counts import counted
from promptguard.decisions import Allowance, text_hash
from promptguard.protocols import SessionKey
from promptguard.service.auth import Scope
from promptguard.service.dashboard.actions import put_label
from promptguard.service.dashboard.components import Page, Tag, panel, raw, session_url, telling
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

    page: Page
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
        # A client can send anything; only what the form offers is taken.
        if not isinstance(event.args, list) or len(event.args) != 3:
            return
        turn, lasting, is_everywhere = event.args
        card = next((card for card in self.cards if str(card.turn) == turn), None)
        days = next((each for each in DAYS if str(each) == lasting), None)
        if card is None or card.user is None or days is None:
            return
        page, context, session_id = self.page, self.page.context, self.key.session_id
        if not page.may_change("allow", session_id, self.key.tenant):
            return
        allowance = Allowance(
            text_hash=text_hash(card.user),
            expires=context.clock() + days * _DAY_S,
            application="" if is_everywhere is True else key_name(session_id),
            session_id=session_id,
            turn=card.turn,
        )
        with telling(self.said):
            await context.decisions.allow(page.visitor.name, self.key.tenant, allowance)
            await put_label(page, self.key, FALSE_ALARM, turn=card.turn)
            told = f"The text of turn {card.turn} passes for {counted(days, 'day')}."
            self.said.content = str(notice(told))


@dataclass(slots=True, kw_only=True)
class AllowancesPanel:
    """On the review page: what passes, until when, who said so."""

    page: Page
    listed: ui.html = field(init=False)

    def build(self) -> None:
        """Place the list."""
        with panel("Allowed texts", classes="allowances") as section:
            self.listed = raw()
        section.on("withdraw", self.on_withdraw, js_handler="(e) => emit(e.detail)")
        self.show()

    def show(self) -> None:
        """List what is in force for the visitor's tenant."""
        context, tenant = self.page.context, self.page.tenant
        now, base = context.clock(), self.page.base
        rows = [
            (each, session_url(base, each.allowance.session_id, each.allowance.turn))
            for each in context.controller.permissions.given
            if each.tenant == tenant and each.allowance.expires > now
        ]
        may_withdraw = self.page.visitor.may(Scope.ADMIN)
        self.listed.content = str(render("allowances", "listed", rows, may_withdraw))

    async def on_withdraw(self, event: GenericEventArguments) -> None:
        """Take one back."""
        if not isinstance(event.args, int):
            return
        page, tenant = self.page, self.page.tenant
        if not page.may_change("withdraw", f"allowance {event.args}", tenant):
            return
        with telling(self.listed):
            await page.context.decisions.withdraw(page.visitor.name, tenant, event.args)
            self.show()
            page.say("The allowance was withdrawn.")


def _is_offered(card: Card) -> bool:
    """Say whether an allowance can help: the text is known and no hard rule forbids it."""
    return bool(card.user) and card.verdict is not None and not card.verdict.is_hard
