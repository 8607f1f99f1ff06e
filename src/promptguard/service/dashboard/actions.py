"""What a person may do with a session: label, release, lock, delete, export."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from nicegui import ui
from nicegui.events import GenericEventArguments

from promptguard.conversation import printable
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.service.auth import Scope
from promptguard.service.dashboard.components import Page, Tag, button, panel, raw, telling
from promptguard.service.dashboard.sessions import LABELS
from promptguard.service.dashboard.templates import notice, render
from promptguard.stored_sessions import FALSE_ALARM

_LONGEST_NOTE = 2000
_SUBMIT = (
    "(e) => { e.preventDefault(); const form = e.target.closest('form'); "
    "emit([e.submitter ? e.submitter.value : '', form.elements.note.value]); form.reset(); }"
)
_RELEASE = "Unlock the session and let its evidence no longer count"
_LOCK = "Refuse every further turn of this session until it is released"
_ASK_FIRST = "Delete this session and all its messages?"


async def put_label(
    page: Page, key: SessionKey, verdict: str, *, turn: int | None = None, note: str = ""
) -> bool:
    """Record a label and, for a false alarm, unlock the session; False without the scope.

    A false alarm on one turn does not forgive a session in which somebody saw an attack.
    """
    context, name, target = page.context, page.visitor.name, key.session_id
    if not page.may_change("label", target, key.tenant):
        return False
    label = SessionLabel(
        verdict=verdict, author=name or "local", timestamp=context.clock(), turn=turn, note=note
    )
    with context.audit.action(name, "label", target, done=verdict, tenant=key.tenant):
        known = await page.store.labels(key)
        if turn is not None and any(each.verdict != FALSE_ALARM for each in known):
            await page.store.put_label(key, label)
        else:
            await context.controller.put_label(target, label, tenant=key.tenant)
    return True


@dataclass(slots=True, kw_only=True)
class SessionActions:
    """The buttons near the top of a session's page, and the labels given so far."""

    page: Page
    key: SessionKey
    given: ui.html = field(init=False)
    done: ui.html = field(init=False)

    async def build(self) -> None:
        """Place the panel."""
        with panel("What to do", classes="actions"):
            export = render("session", "export", self.page.base, self.key.session_id)
            if self.page.visitor.may(Scope.ADMIN):
                self._place_label_form()
                with Tag("div", classes="row"):
                    button("Release", self.on_release, title=_RELEASE)
                    button("Lock", self.on_lock, title=_LOCK)
                    button("Delete", self.on_delete, classes="danger", confirm=_ASK_FIRST)
                    raw(export, tag="span")
            else:
                raw(notice("Your key may read, not label."))
                raw(export, tag="span")
            self.done = raw().props("aria-live=polite")
            self.given = raw().props("aria-live=polite")
        await self.show()

    async def on_label(self, event: GenericEventArguments) -> None:
        """Record a label on the whole session."""
        verdict, note = _submitted(event.args)
        if verdict not in LABELS:
            return
        # A browser that cuts a note at its longest may cut a character in two.
        note = printable(note[:_LONGEST_NOTE])
        with telling(self.given):
            await put_label(self.page, self.key, verdict, note=note)
            await self.show()

    async def on_release(self) -> None:
        """Unlock the session and forget its evidence."""
        controller, key = self.page.context.controller, self.key
        release = partial(controller.release, key.session_id, tenant=key.tenant, forgive=True)
        await self._do("release", release, "Released: the session begins anew, its turns stay.")

    async def on_lock(self) -> None:
        """Refuse every further turn of the session."""
        controller, key = self.page.context.controller, self.key
        reason = f"locked by {self.page.visitor.name or 'local'}"
        lock = partial(controller.lock, key.session_id, reason=reason, tenant=key.tenant)
        await self._do("lock", lock, "Locked: every further turn is refused.")

    async def on_delete(self) -> None:
        """Forget the session wholly."""
        delete = partial(self.page.store.delete, self.key)
        if await self._do("delete", delete, "Deleted."):
            ui.navigate.to(f"{self.page.base}/sessions")

    async def show(self) -> None:
        """Show the labels given so far."""
        labels = await self.page.store.labels(self.key)
        self.given.content = str(render("session", "labels", labels, LABELS))

    def _place_label_form(self) -> None:
        with Tag("form", classes="label-form") as form:
            Tag("label", "Note (optional)", _for="note", classes="sr-only")
            with Tag("div", classes="row"):
                for value, name in LABELS.items():
                    Tag("button", name, classes="button", type="submit", value=value)
                Tag(
                    "input", id="note", name="note", type="text", maxlength=str(_LONGEST_NOTE),
                    placeholder="Note (optional)",
                )  # fmt: skip
        form.on("submit", self.on_label, js_handler=_SUBMIT)

    async def _do(self, name: str, work: Callable[[], Awaitable[object]], done: str) -> bool:
        page, target, tenant = self.page, self.key.session_id, self.key.tenant
        if not page.may_change(name, target, tenant):
            return False
        with telling(self.done):
            with page.context.audit.action(page.visitor.name, name, target, tenant=tenant):
                await work()
            self.done.content = str(notice(done))
            return True
        return False


def _submitted(args: object) -> tuple[str, str]:
    """Return verdict and note of a submitted form; empty where a client sends anything else."""
    if isinstance(args, list) and len(args) == 2 and all(isinstance(a, str) for a in args):
        return args[0], args[1]
    return "", ""
