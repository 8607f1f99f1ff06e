"""What people say of a session: a true attack, or a false alarm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nicegui import ui
from nicegui.events import GenericEventArguments

from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.service.auth import Scope
from promptguard.service.dashboard.access import Visitor
from promptguard.service.dashboard.controls import Tag, panel, raw
from promptguard.service.dashboard.desk import Desk
from promptguard.service.dashboard.markup import esc, moment, notice

VERDICTS = {"attack": "True attack", "false_alarm": "False alarm"}
_LONGEST_NOTE = 2000
_SUBMIT = (
    "(e) => { e.preventDefault(); const form = e.target.closest('form'); "
    "emit([e.submitter ? e.submitter.value : '', form.elements.note.value]); form.reset(); }"
)


@dataclass(slots=True, kw_only=True)
class LabelPanel:
    """The labels of one session, and the form for those who may give one."""

    desk: Desk
    visitor: Visitor
    key: SessionKey
    given: ui.html = field(init=False)

    async def build(self) -> None:
        """Place the panel."""
        with panel("Label"):
            if self.visitor.may(Scope.ADMIN):
                with Tag("form", classes="label-form") as form:
                    Tag("label", "Note (optional)", _for="note")
                    Tag("input", id="note", name="note", type="text", maxlength=str(_LONGEST_NOTE))
                    with Tag("div", classes="row"):
                        for value, name in VERDICTS.items():
                            Tag("button", name, classes="button", type="submit", value=value)
                form.on("submit", self.on_label, js_handler=_SUBMIT)
            else:
                raw(notice("Your key may read, not label."))
            self.given = raw().props("aria-live=polite")
        await self.show()

    async def on_label(self, event: GenericEventArguments) -> None:
        """Record a label."""
        verdict, note = _said(event.args)
        if verdict not in VERDICTS or not self.visitor.may(Scope.ADMIN):
            return
        label = SessionLabel(
            verdict=verdict,
            author=self.visitor.name or "local",
            timestamp=self.desk.clock(),
            note=note[:_LONGEST_NOTE],
        )
        try:
            await self.desk.controller.store.put_label(self.key, label)
        except PromptGuardError as error:
            outcome = type(error).__name__
            self.desk.audit.record(self.visitor.name, "label", self.key.session_id, outcome)
            self.given.content = notice(str(error), kind="bad")
            return
        self.desk.audit.record(self.visitor.name, "label", self.key.session_id, verdict)
        await self.show()

    async def show(self) -> None:
        """Show the labels given so far."""
        labels = await self.desk.controller.store.labels(self.key)
        self.given.content = labels_html(labels)


def labels_html(labels: Sequence[SessionLabel]) -> str:
    """List labels, the newest first."""
    if not labels:
        return (
            '<p class="quiet">Not labelled yet. Labels are what <code>tune</code> learns from.</p>'
        )
    items = "".join(
        f'<li><span class="tagged label-{esc(label.verdict)}">'
        f"{esc(VERDICTS.get(label.verdict, label.verdict))}</span> "
        f'{esc(label.author)} <span class="quiet">{moment(label.timestamp)}</span>'
        f"{f'<br>{esc(label.note)}' if label.note else ''}</li>"
        for label in reversed(labels)
    )
    return f'<ul class="labels">{items}</ul>'


def _said(args: object) -> tuple[str, str]:
    if isinstance(args, list) and len(args) == 2 and all(isinstance(a, str) for a in args):
        return args[0], args[1]
    return "", ""
