"""Other settings tried on all stored traffic, and put in force with one click."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from nicegui import background_tasks, ui

from promptguard.decisions import AppliedSettings
from promptguard.protocols import SessionKey
from promptguard.risk.weights import PRESETS
from promptguard.service.auth import Scope
from promptguard.service.dashboard.components import (
    Page,
    Tag,
    button,
    choice,
    panel,
    raw,
    session_url,
    telling,
)
from promptguard.service.dashboard.templates import notice, render
from promptguard.service.decisions import weights_offered, weights_path
from promptguard.service.what_if import Change, Move, WhatIf

_LOOK_S = 0.4
_EXCERPT_CHARS = 220
_CONFIRM = "Put these settings in force for all traffic?"


@dataclass(slots=True, kw_only=True)
class WhatIfPanel:
    """Choose settings, count what they would change, apply them or go back."""

    page: Page
    chosen: str = ""
    standing: ui.html = field(init=False)
    shown: ui.html = field(init=False)
    cancel_button: Tag = field(init=False)
    apply_button: Tag = field(init=False)
    revert_button: Tag = field(init=False)

    async def build(self) -> None:
        """Place everything; a count that is under way is shown as it stands."""
        with panel("What if? Other settings on all stored traffic", classes="what-if"):
            self.standing = raw()
            with Tag("div", classes="row"):
                choice("what-if", "Settings", self._offered(), self.on_choice, is_label_shown=False)
                button("Count what would change", self.on_count, classes="primary")
                self.cancel_button = button("Cancel", self.on_cancel)
                self.apply_button = button("Apply", self.on_apply, confirm=_CONFIRM)
                self.revert_button = button(
                    "Back to the settings file", self.on_revert, confirm=_CONFIRM
                )
            self.shown = raw().props("aria-live=polite")
        await self._show()
        if self._is_running:
            self._watch()

    async def on_choice(self, name: str) -> None:
        """Choose what to try."""
        self.chosen = name

    async def on_count(self) -> None:
        """Begin to count, unless a count is under way."""
        if not self.page.visitor.may(Scope.READ):
            return
        if not self.chosen:
            self._say("Choose the settings to try first.")
            return
        # One count for each tenant: it reads all stored turns.
        if self._is_running:
            self._say("A count is under way; cancel it first.")
            return
        with telling(self.shown):
            job = self.page.context.what_ifs[self.page.tenant] = self._opened(self.chosen)
            # Not tied to the page: a count of minutes goes on when its visitor looks elsewhere.
            background_tasks.create(job.run(), name="what if")
            self._watch()

    async def on_cancel(self) -> None:
        """End the count."""
        if self._job is not None and self.page.visitor.may(Scope.READ):
            self._job.cancel()
            await self._show()

    async def on_apply(self) -> None:
        """Put the counted settings in force."""
        if self._job is not None and self._job.report is not None:
            await self._apply(self._job.choice)

    async def on_revert(self) -> None:
        """Let the settings file decide again."""
        await self._apply("")

    @property
    def _job(self) -> WhatIf | None:
        return self.page.context.what_ifs.get(self.page.tenant)

    @property
    def _is_running(self) -> bool:
        return self._job is not None and self._job.is_running

    @property
    def _may_apply(self) -> bool:
        # Settings hold for everybody, and an administrator is one of a single tenant.
        tenants = {key.tenant for key in self.page.context.live.current.service.keys}
        return self.page.visitor.may(Scope.ADMIN) and tenants <= {self.page.tenant}

    async def _apply(self, choice: str) -> None:
        context, author, tenant = self.page.context, self.page.visitor.name, self.page.tenant
        if not self._may_apply:
            target = choice or "the settings file"
            context.audit.record(author, "apply", target, "refused", tenant=tenant)
            return
        with telling(self.shown):
            applied = await context.decisions.apply(author, tenant, context.live.written, choice)
            # The count compared with settings that are no longer in force.
            if (job := context.what_ifs.pop(tenant, None)) is not None:
                job.cancel()
            await self._show()
            self._say(f"In force: {applied.name}.")
            self.page.say(f"In force: {applied.name}.")

    def _offered(self) -> list[tuple[str, str]]:
        config, written = self.page.context.controller.config, self.page.context.live.written
        presets = [
            (name, f"Preset {name}")
            for name in PRESETS
            if name != config.preset or config.false_positive_budget is not None
        ]
        files = [(name, f"Weights {name}") for name in weights_offered(written)]
        return [("", "Choose…"), *presets, *files]

    def _opened(self, chosen: str) -> WhatIf:
        context = self.page.context
        if chosen in PRESETS:
            changes = {"preset": chosen, "false_positive_budget": None}
        else:
            changes = {"weights": str(weights_path(context.live.written, chosen))}
        return WhatIf(
            store=self.page.store,
            calls=context.calls,
            ours=context.controller.judge,
            other=context.controller.config.model_copy(update=changes),
            principal=self.page.visitor.principal,
            choice=chosen,
            name=dict(self._offered()).get(chosen, chosen),
        )

    def _watch(self) -> None:
        task = background_tasks.create(self._follow(), name="show what if")
        ui.context.client.on_delete(lambda: task.cancel())

    async def _follow(self) -> None:
        with telling(self.shown):
            while self._is_running:
                await self._show()
                await asyncio.sleep(_LOOK_S)
            await self._show()

    async def _show(self) -> None:
        job, applied = self._job, self.page.context.decisions.applied
        config = self.page.context.controller.config
        self.standing.content = str(render("what_if", "standing", config, applied, self._may_apply))
        is_counted = job is not None and job.report is not None
        self.cancel_button.set_visibility(self._is_running)
        self.apply_button.set_visibility(is_counted and self._may_apply)
        self.revert_button.set_visibility(applied != AppliedSettings() and self._may_apply)
        if job is None:
            self.shown.content = ""
        elif job.report is None:
            self.shown.content = str(render("what_if", "progress", job))
        else:
            rows = [(move, await self._examples(move)) for move in job.report.moves]
            self.shown.content = str(render("what_if", "report", job.name, job.report, rows))

    async def _examples(self, move: Move) -> Sequence[tuple[Change, str, str | None]]:
        base = self.page.base
        return [
            (each, session_url(base, each.session_id, each.turn), await self._text(each))
            for each in move.examples
        ]

    async def _text(self, change: Change) -> str | None:
        """Return the beginning of a turn's text; None where it is not kept."""
        key = SessionKey(session_id=change.session_id, tenant=self.page.tenant)
        for entry in await self.page.store.transcript(key):
            if entry.turn == change.turn:
                return None if entry.content is None else entry.content[:_EXCERPT_CHARS]
        return None

    def _say(self, text: str) -> None:
        self.shown.content = str(notice(text))
