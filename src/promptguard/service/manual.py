"""The manual: the pages of docs/, rendered when they are asked for, and a search over them.

An installed package has them in its data, a checkout beside its source. A page has the address of
its file, so that the links in it lead to the others as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import yaml
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from promptguard import __version__
from promptguard.service.dashboard.templates import ASSETS, render

MANUAL = "/manual"
FIRST, ICON = "index.md", "favicon.svg"
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_MAX_QUERY_CHARS = 200
_MAX_FOUND = 40
_MAX_UP = 16
_EXCERPT_CHARS = 160
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What stands under one heading, as plain text; both are empty for a page's beginning."""

    title: str = ""
    anchor: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page as it is shown."""

    path: str
    title: str
    html: Markup
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A section that holds every word of a search."""

    href: str
    page: str
    section: str
    excerpt: str


class Manual:
    """The pages of one folder, in the order of the navigation."""

    def __init__(self, folder: Path, navigation: Path) -> None:
        self._folder = folder
        self.groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = tuple(
            (name, tuple((path, _title(folder / path)) for path in _listed(paths)))
            for group in yaml.safe_load(navigation.read_text("utf-8"))["nav"]
            for name, paths in group.items()
        )
        # Only what is listed here is ever read, so no path of a request leads elsewhere.
        self._paths = frozenset(path for _, pages in self.groups for path, _ in pages)
        self._images = frozenset(f"images/{image.name}" for image in folder.glob("images/*.png"))
        self._rendered: dict[str, Page] = {}

    def page(self, path: str) -> Page | None:
        """Return a page of the navigation."""
        if path not in self._paths:
            return None
        if path not in self._rendered:
            self._rendered[path] = _rendered(path, (self._folder / path).read_text("utf-8"))
        return self._rendered[path]

    def image(self, path: str) -> Path | None:
        """Return the file of a picture on the pages, or of their icon."""
        if path == ICON:
            return ASSETS / ICON
        return self._folder / path if path in self._images else None

    def search(self, query: str) -> list[SearchHit]:
        """Return the sections that hold every word, those with one in the heading first."""
        words = query[:_MAX_QUERY_CHARS].casefold().split()
        pages = [self.page(path) for _, listed in self.groups for path, _ in listed if words]
        hits = [
            (page, section)
            for page in pages
            if page is not None
            for section in page.sections
            if all(word in f"{section.title} {section.text}".casefold() for word in words)
        ]
        hits.sort(key=lambda hit: not any(word in hit[1].title.casefold() for word in words))
        return [_found(page, section, words[0]) for page, section in hits[:_MAX_FOUND]]


@cache
def the_manual() -> Manual | None:
    """Return the manual of this installation; None where it was built without one."""
    package = Path(str(files("promptguard")))
    packed, checkout = package / "data" / "manual", package.parents[1]
    # An installed package brings its own; a folder that lies beside it by chance does not count.
    for folder, navigation in (
        (packed, packed / "mkdocs.yml"),
        (checkout / "docs", checkout / "mkdocs.yml"),
    ):
        if navigation.is_file():
            return Manual(folder, navigation)
    return None


def page_headers() -> dict[str, str]:
    """Return the headers of a page of documentation, which nothing from elsewhere may enter."""
    return {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "same-origin",
        "content-security-policy": _POLICY,
    }


def add_manual(app: FastAPI, manual: Manual) -> None:
    """Serve the manual at /manual/."""

    def show(request: Request) -> Response:  # Starlette calls it in a thread: pages are computed
        path = request.path_params["path"] or FIRST
        image = manual.image(path)
        if image is not None:
            return FileResponse(image, headers=page_headers())
        query = request.query_params.get("q", "").strip()
        page = manual.page(path)
        # Every link repeats it, and an address can be made of nothing but slashes.
        up = "../" * min(path.count("/"), _MAX_UP)
        if query and page is not None:
            found = manual.search(query)
            html = render("manual", "results", manual.groups, up, __version__, query, found)
        elif page is not None:
            html = render("manual", "page", manual.groups, up, __version__, page)
        else:
            html = render("manual", "missing", manual.groups, up, __version__)
        return HTMLResponse(html, 404 if page is None else 200, headers=page_headers())

    app.add_route(f"{MANUAL}/{{path:path}}", show, methods=["GET"], include_in_schema=False)


def _listed(paths: str | Sequence[str]) -> Sequence[str]:
    return (paths,) if isinstance(paths, str) else paths


def _title(page: Path) -> str:
    first = page.read_text("utf-8").partition("\n")[0]
    return first.removeprefix("# ").strip()


def _rendered(path: str, text: str) -> Page:
    tokens = _MARKDOWN.parse(text)
    anchors: Counter[str] = Counter()
    sections = [Section()]
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            title = _plain(content)
            anchor = _anchor(title, anchors)
            token.attrSet("id", anchor)
            sections.append(Section(title=title, anchor=anchor))
        elif content.type in ("inline", "fence"):
            more = f"{sections[-1].text} {_plain(content)}".strip()
            sections[-1] = replace(sections[-1], text=more)
    html = Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704  # our own pages
    title = next((section.title for section in sections if section.title), path)
    said = tuple(section for section in sections if section.title or section.text)
    return Page(path=path, title=title, html=html, sections=said)


def _plain(token: Token) -> str:
    """Return a token's words without marks of emphasis, links or code."""
    if not token.children:
        return token.content
    return "".join(" " if child.type == "softbreak" else child.content for child in token.children)


def _anchor(title: str, taken: Counter[str]) -> str:
    """Return a heading's name in links, as the site's builder makes it."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
    taken[name] += 1
    return name if taken[name] == 1 else f"{name}_{taken[name] - 1}"


def _found(page: Page, section: Section, word: str) -> SearchHit:
    at = max(section.text.casefold().find(word) - _EXCERPT_CHARS // 2, 0)
    return SearchHit(
        href=f"{page.path}#{section.anchor}",
        page=page.title,
        section=section.title,
        excerpt=section.text[at : at + _EXCERPT_CHARS],
    )
