"""What a person may do with a session: label, release, lock, delete, export."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup
from nicegui import ui
from nicegui.events import GenericEventArguments

from promptguard.conversation import printable
from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.service.auth import Scope
from promptguard.service.dashboard.access import DashboardContext, Visitor
from promptguard.service.dashboard.components import Tag, button, panel, raw
from promptguard.service.dashboard.sessions import LABELS
from promptguard.service.dashboard.templates import notice, render
from promptguard.stored_sessions import FALSE_ALARM

_LONGEST_NOTE = 2000
_SUBMIT = (
    "(e) => { e.preventDefault(); const form = e.target.closest('form'); "
    "emit([e.submitter ? e.submitter.value : '', form.elements.note.value]); form.reset(); }"
)
_ASK_FIRST = "() => { if (confirm('Delete this session and all its messages?')) emit(null); }"


async def put_label(
    context: DashboardContext, visitor: Visitor, key: SessionKey, label: SessionLabel
) -> bool:
    """Record a label and, for a false alarm, unlock the session; False without the scope.

    A false alarm on one turn does not forgive a session in which somebody saw an attack.
    """
    audit, controller = context.audit, context.controller
    # Looked up here as well: hiding a button does not stop a client from sending its event.
    if not visitor.may(Scope.ADMIN):
        audit.record(visitor.name, "label", key.session_id, "insufficient_scope", tenant=key.tenant)
        return False
    with audit.action(visitor.name, "label", key.session_id, done=label.verdict, tenant=key.tenant):
        known = await controller.store.labels(key)
        has_attack = any(each.verdict != FALSE_ALARM for each in known)
        if label.turn is not None and has_attack:
            await controller.store.put_label(key, label)
        else:
            await controller.put_label(key.session_id, label, tenant=key.tenant)
    return True


@dataclass(slots=True, kw_only=True)
class SessionActions:
    """The buttons near the top of a session's page, and the labels given so far."""

    context: DashboardContext
    visitor: Visitor
    key: SessionKey
    base: str = ""
    given: ui.html = field(init=False)
    done: ui.html = field(init=False)

    async def build(self) -> None:
        """Place the panel."""
        with panel("What to do", classes="actions"):
            if self.visitor.may(Scope.ADMIN):
                self._place_label_form()
                with Tag("div", classes="row"):
                    button("Release", self.on_release, title=_RELEASE)
                    button("Lock", self.on_lock, title=_LOCK)
                    delete = Tag("button", "Delete", classes="button danger", type="button")
                    delete.on("click", lambda _: self.on_delete(), js_handler=_ASK_FIRST)
                    raw(render("session", "export", self.base, self.key.session_id), tag="span")
            else:
                raw(notice("Your key may read, not label."))
                raw(render("session", "export", self.base, self.key.session_id), tag="span")
            self.done = raw().props("aria-live=polite")
            self.given = raw().props("aria-live=polite")
        await self.show()

    async def on_label(self, event: GenericEventArguments) -> None:
        """Record a label on the whole session."""
        verdict, note = _submitted(event.args)
        if verdict not in LABELS:
            return
        label = SessionLabel(
            verdict=verdict,
            author=self.visitor.name or "local",
            timestamp=self.context.clock(),
            # A browser that cuts a note at its longest may cut a character in two.
            note=printable(note[:_LONGEST_NOTE]),
        )
        try:
            await put_label(self.context, self.visitor, self.key, label)
        except PromptGuardError as error:
            self.given.content = str(notice(str(error), "bad"))
            return
        await self.show()

    async def on_release(self) -> None:
        """Unlock the session and forget its evidence."""
        controller, key = self.context.controller, self.key

        async def release() -> None:
            await controller.release(key.session_id, tenant=key.tenant, forgive=True)

        await self._do("release", release, "Released: the session begins anew, its turns stay.")

    async def on_lock(self) -> None:
        """Refuse every further turn of the session."""
        controller, key = self.context.controller, self.key
        reason = f"locked by {self.visitor.name or 'local'}"

        async def lock() -> None:
            await controller.lock(key.session_id, reason=reason, tenant=key.tenant)

        await self._do("lock", lock, "Locked: every further turn is refused.")

    async def on_delete(self) -> None:
        """Forget the session wholly."""

        async def delete() -> None:
            await self.context.controller.store.delete(self.key)

        if await self._do("delete", delete, "Deleted."):
            ui.navigate.to(f"{self.base}/sessions")

    async def show(self) -> None:
        """Show the labels given so far."""
        labels = await self.context.controller.store.labels(self.key)
        self.given.content = str(labels_html(labels))

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

    async def _do(self, name: str, work: Callable[[], Awaitable[None]], done: str) -> bool:
        audit, author, target = self.context.audit, self.visitor.name, self.key.session_id
        if not self.visitor.may(Scope.ADMIN):
            audit.record(author, name, target, "insufficient_scope", tenant=self.key.tenant)
            return False
        try:
            with audit.action(author, name, target, done="done", tenant=self.key.tenant):
                await work()
        except PromptGuardError as error:
            self.done.content = str(notice(str(error), "bad"))
            return False
        self.done.content = str(notice(done))
        return True


_RELEASE = "Unlock the session and let its evidence no longer count"
_LOCK = "Refuse every further turn of this session until it is released"


def labels_html(labels: Sequence[SessionLabel]) -> Markup:
    """List labels, the newest first."""
    return render("session", "labels", labels, LABELS)


def _submitted(args: object) -> tuple[str, str]:
    """Return verdict and note of a submitted form; empty where a client sends anything else."""
    if isinstance(args, list) and len(args) == 2 and all(isinstance(a, str) for a in args):
        return args[0], args[1]
    return "", ""
