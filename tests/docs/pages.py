"""The documentation as tests read it: pages, their code blocks, headings and links."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))

_BLOCK = re.compile(
    r"^(?:[ ]*<!-- (?P<mark>[^\n]*?) -->\n)?(?P<indent>[ ]*)```(?P<language>\w*)\n"
    r"(?P<code>.*?)\n?^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block; `mark` is the comment above it."""

    page: Path
    line: int
    language: str
    mark: str
    code: str

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path, language: str) -> list[Block]:
    """Return the blocks of one language, in order."""
    text = page.read_text("utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start("language")) + 1,
            language=match["language"],
            mark=match["mark"] or "",
            code=textwrap.dedent(match["code"]) + "\n",
        )
        for match in _BLOCK.finditer(text)
        if match["language"] == language
    ]


def without_code(page: Path) -> str:
    """Return a page's text without its blocks and code spans."""
    text = _BLOCK.sub("", page.read_text("utf-8"))
    return re.sub(r"`[^`\n]*`", "`code`", text)


def links_of(page: Path) -> list[str]:
    """Return the targets of the links to other pages and headings."""
    links = _LINK.findall(without_code(page))
    return [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]


def anchors_of(page: Path) -> set[str]:
    """Return the ids that the site gives to the page's headings."""
    text = _BLOCK.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {slugify(re.sub(r"[`*]", "", heading), "-") for heading in headings}
