"""The widgets that all pages are built from: native form controls, the page frame, live updates.

Native controls are labelled, usable by keyboard and readable aloud without work of our own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup
from nicegui import Client, background_tasks, ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments
from starlette.requests import Request

from promptguard import __version__
from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey, SessionStore
from promptguard.service.auth import Scope
from promptguard.service.dashboard.access import (
    PATH,
    DashboardContext,
    Visitor,
    base_of,
    context_of,
    visitor_of,
)
from promptguard.service.dashboard.templates import notice, render
from promptguard.service.lanes import Lane
from promptguard.service.manual import the_manual

PAGES = (
    ("/", "Overview"),
    ("/sessions", "Sessions"),
    ("/review", "Review"),
    ("/playground", "Playground"),
    ("/quality", "Quality"),
)
RETRY_S = 5.0
_NOTHING = Markup()
OnValue = Callable[[str], Awaitable[None]]
OnClick = Callable[[], Awaitable[None]]
OnChange = Callable[[SessionKey | None], Awaitable[None]]
Options = Sequence[tuple[str, str]]


class Tag(TextElement):
    """Any HTML element with plain text in it."""

    def __init__(
        self, tag: str, text: str = "", /, *, classes: str = "", **attributes: str
    ) -> None:
        super().__init__(tag=tag, text=text)
        self.classes(classes)
        for key, value in attributes.items():
            # `for` is a word of Python, so an attribute may be given with an underscore before it.
            self._props[key.strip("_").replace("_", "-")] = value


def raw(content: Markup = _NOTHING, *, tag: str = "div", classes: str = "") -> ui.html:
    """Place HTML that our templates wrote."""
    # Safe because the templates have escaped what they were given.
    return ui.html(str(content), sanitize=False, tag=tag).classes(classes)


@contextmanager
def telling(place: ui.html) -> Iterator[None]:
    """Say in `place` why the block failed, where it does."""
    try:
        yield
    except PromptGuardError as error:
        place.content = str(notice(str(error), "bad"))


def button(
    text: str, on_click: OnClick, *, classes: str = "", confirm: str = "", **attributes: str
) -> Tag:
    """Place a button; with `confirm`, the browser asks that first."""
    made = Tag("button", text, classes=f"button {classes}", type="button", **attributes)
    condition = f"if (confirm({json.dumps(confirm)})) " if confirm else ""
    made.on("click", lambda _: on_click(), js_handler=f"() => {{ {condition}emit(null); }}")
    return made


def choice(
    name: str, label: str, options: Options, on_value: OnValue, *, is_label_shown: bool = True
) -> None:
    """Place a drop-down of (value, wording) pairs; a value not among them is ignored."""
    known = [value for value, _ in options]

    async def chosen(event: GenericEventArguments) -> None:
        # A client can send anything.
        if event.args in known:
            await on_value(event.args)

    Tag("label", label, classes="" if is_label_shown else "sr-only", _for=name)
    with Tag("select", id=name) as field:
        for value, wording in options:
            Tag("option", wording, value=value)
    field.on("change", chosen, js_handler="(e) => emit(e.target.value)")


def panel(title: str, *, classes: str = "") -> Element:
    """Open a titled section; what is placed within `with` is inside it."""
    section = Tag("section", classes=f"panel {classes}")
    with section:
        Tag("h2", title)
    return section


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An open page: who looks at what, and the parts of its frame that change meanwhile."""

    context: DashboardContext
    visitor: Visitor
    base: str = ""
    live: Tag
    spoken: Tag

    @property
    def store(self) -> SessionStore:
        """Where the sessions are."""
        return self.context.controller.store

    @property
    def tenant(self) -> str:
        """The tenant whose sessions are shown; none once the visit is over."""
        return self.visitor.tenant

    def may_change(self, action: str, target: str, tenant: str) -> bool:
        """Say whether the visitor may do what changes something; record it where not."""
        # Looked up at each action: hiding a button does not stop a client from sending its event.
        if self.visitor.may(Scope.ADMIN):
            return True
        self.context.audit.record(
            self.visitor.name, action, target, "insufficient_scope", tenant=tenant
        )
        return False

    def call(self, lane: Lane) -> AbstractAsyncContextManager[None]:
        """Begin a computation of the visitor's, under the limits of the others of its lane."""
        return self.context.calls.begin(self.visitor.principal, lane)

    def show_live(self, is_live: bool) -> None:
        """Show whether the page follows the store."""
        self.live.set_visibility(True)
        self.live.text = "Live" if is_live else "Live updates interrupted"
        self.live.classes(add="" if is_live else "off", remove="off" if is_live else "")

    def say(self, text: str) -> None:
        """Announce `text` to screen readers."""
        self.spoken.text = text


@contextmanager
def page_frame(request: Request, path: str, title: str) -> Iterator[Page]:
    """Open a page; what is placed within `with` is its main part.

    Where the store or a judge fails while it is placed, the page says so.
    """
    context, visitor, base = context_of(request), visitor_of(request), base_of(request)
    ui.add_head_html(str(render("frame", "head", base, __version__)))
    ui.page_title(f"{title} · promptguard")
    client = ui.context.client
    with client.layout:
        skip = Tag("a", "Skip to content", classes="skip", href="#main")
        with Tag("header", classes="side") as side:
            raw(render("frame", "brand", base))
            raw(render("frame", "nav", base, PAGES, path), tag="nav").props('aria-label="Pages"')
            with Tag("div", classes="side-end"):
                live = Tag("span", classes="live", role="status")
                config = context.controller.config
                Tag("span", f"{config.mode} · {config.preset}", classes="quiet standing")
                has_manual = the_manual() is not None
                raw(render("frame", "documents", base.removesuffix(PATH), has_manual))
                raw(render("frame", "theme_switch"))
                if visitor.name:
                    raw(render("frame", "sign_out", base, visitor.name))
    side.move(client.layout, 0)
    skip.move(client.layout, 0)
    live.set_visibility(False)
    _main_of(client).props("id=main tabindex=-1")
    with Tag("div", classes="content"):
        spoken = Tag("p", classes="sr-only", aria_live="polite")
        try:
            yield Page(context=context, visitor=visitor, base=base, live=live, spoken=spoken)
        except PromptGuardError as error:
            # Monitors see the failure in the status, visitors in the text.
            client.status_code = 503
            raw(render("frame", "failed", str(error), request.url.path))


def follow(page: Page, on_change: OnChange) -> None:
    """Call `on_change` for each saved session of the visitor's tenant until the page is closed.

    What is saved after this call is not missed, so call it before the page reads the store; after
    an interruption `on_change` gets None, for any session may have changed. The page shows
    whether changes can be followed.
    """
    changes, visitor = page.store.changes(), page.visitor

    async def pass_on(source: AsyncIterator[SessionKey]) -> None:
        async for key in source:
            # A key may have been removed while the page was open.
            if not visitor.may(Scope.READ):
                return
            if key.tenant == page.tenant:
                page.show_live(True)
                await on_change(key)

    async def listen() -> None:
        source, is_over, has_gap = changes, False, False
        while not is_over and visitor.may(Scope.READ):
            try:
                if has_gap:
                    await on_change(None)
                    page.show_live(True)
                await pass_on(source)
                is_over = True
            except PromptGuardError:
                page.show_live(False)
                await asyncio.sleep(RETRY_S)
                source, has_gap = page.store.changes(), True
        # The visit is over, and nothing new will be shown.
        page.show_live(False)

    page.show_live(True)
    task = background_tasks.create(listen(), name="follow the store")
    ui.context.client.on_delete(lambda: task.cancel())


class PageWork:
    """What a page computes for long: the newest of each name, and nothing once the page is gone."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}
        ui.context.client.on_delete(self.end_all)

    async def run(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Wait for `work`, or until it is ended; an earlier one of the same name is ended first."""
        self.end(name)
        task = asyncio.ensure_future(work)
        self._running[name] = task
        try:
            # Not awaited itself: its cancellation from outside must not cancel the handler that
            # waits.
            await asyncio.wait((task,))
        finally:
            task.cancel()
        if not task.cancelled():
            task.result()

    def end(self, name: str) -> None:
        """End what runs under `name`, if anything does."""
        if name in self._running:
            self._running.pop(name).cancel()

    def end_all(self) -> None:
        """End everything."""
        for name in tuple(self._running):
            self.end(name)


def session_url(base: str, session_id: str, turn: int | None = None) -> str:
    """Return the address of a session's page, or of one of its turns there."""
    place = "" if turn is None else f"#turn-{turn}"
    return f"{base}/session?id={quote(session_id, safe='')}{place}"


def _main_of(client: Client) -> Element:
    """Return NiceGUI's own <main>, so that the page has one and the navigation is outside it."""
    slot = client.content.parent_slot
    assert slot is not None
    return slot.parent
