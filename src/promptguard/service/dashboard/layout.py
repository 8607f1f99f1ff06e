"""The frame around every page: skip link, navigation, theme switch, status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version

from nicegui import Client, ui
from nicegui.element import Element
from starlette.requests import Request

from promptguard.service.dashboard.controls import Tag, raw
from promptguard.service.dashboard.desk import base_of, desk_of, visitor_of
from promptguard.service.dashboard.markup import esc

PAGES = (("/", "Sessions"), ("/playground", "Playground"), ("/quality", "Quality"))
_ICONS = {
    "/": '<path d="M3 12h4l3-8 4 16 3-8h4"/>',
    "/playground": '<path d="M4 5h16v11H9l-5 4z"/>',
    "/quality": '<path d="M5 20V10m7 10V4m7 16v-7"/>',
}
SHIELD = (
    '<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">'
    '<path d="M12 2 4 5v6c0 5.2 3.4 9.6 8 11 4.6-1.4 8-5.8 8-11V5z"/>'
    '<path d="m8.5 12 2.5 2.5 4.5-5"/></svg>'
)
# Runs before the first paint, so that no page flashes in the wrong theme.
_THEME = (
    "try{var t=localStorage.getItem('promptguard-theme')}catch(e){}"
    "document.documentElement.dataset.theme=t||"
    "(matchMedia('(prefers-color-scheme: light)').matches?'light':'dark')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The parts of a page's frame that change while it is looked at."""

    live: Tag
    spoken: Tag

    def show_live(self, is_live: bool) -> None:
        """Say whether the page follows the store."""
        self.live.set_visibility(True)
        self.live.text = "Live" if is_live else "Live updates interrupted"
        self.live.classes(add="" if is_live else "off", remove="off" if is_live else "")

    def say(self, text: str) -> None:
        """Tell those who listen instead of looking."""
        self.spoken.text = text


def head_html(base: str) -> str:
    """Return what stands in every page's head."""
    release = esc(version("promptguard"))
    return (
        f"<script>{_THEME}</script>"
        f'<link rel="stylesheet" href="{esc(base)}/assets/dashboard.css?{release}">'
        f'<script defer src="{esc(base)}/assets/dashboard.js?{release}"></script>'
    )


@contextmanager
def page_frame(request: Request, path: str, title: str) -> Iterator[Frame]:
    """Open a page; what is placed within `with` is its main part."""
    base = base_of(request)
    ui.add_head_html(head_html(base))
    ui.page_title(f"{title} · promptguard")
    client = ui.context.client
    with client.layout:
        skip = Tag("a", "Skip to content", classes="skip", href="#main")
        with Tag("header", classes="side") as side:
            raw(f'<a class="brand" href="{esc(base)}/">{SHIELD}promptguard</a>')
            raw(_nav(base, path), tag="nav").props('aria-label="Pages"')
            with Tag("div", classes="side-end"):
                live = Tag("span", classes="live", role="status")
                _standing(request)
                _switches(request, base)
    side.move(client.layout, 0)
    skip.move(client.layout, 0)
    live.set_visibility(False)
    _main_of(client).props("id=main tabindex=-1")
    with Tag("div", classes="content"):
        spoken = Tag("p", classes="sr-only", aria_live="polite")
        yield Frame(live=live, spoken=spoken)


def _main_of(client: Client) -> Element:
    """Return NiceGUI's own <main>, so that the page has one and the navigation is outside it."""
    slot = client.content.parent_slot
    assert slot is not None
    return slot.parent


def _nav(base: str, current: str) -> str:
    return "".join(
        f'<a href="{esc(base)}{path}"{" aria-current=page" if path == current else ""}>'
        f"{_icon(_ICONS[path])}{name}</a>"
        for path, name in PAGES
    )


def _standing(request: Request) -> None:
    config = desk_of(request).controller.config
    Tag("span", f"{config.mode} · {config.preset}", classes="quiet standing")


def _switches(request: Request, base: str) -> None:
    raw(
        '<button type="button" class="button small" data-theme-switch aria-pressed="false">'
        "Light theme</button>"
    )
    if name := visitor_of(request).name:
        raw(
            f'<form method="post" action="{esc(base)}/logout">'
            f'<span class="quiet">{esc(name)}</span> '
            '<button class="button small" type="submit">Sign out</button></form>'
        )


def _icon(paths: str) -> str:
    return f'<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">{paths}</svg>'
