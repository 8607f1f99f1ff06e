"""The site holds every page, its links lead somewhere, and it needs no other host."""

import re
from pathlib import Path

import pytest
import yaml
from pages import DOCS, PAGES, ROOT, anchors_of, links_of, without_code

GENERATED = {DOCS / "licences.md", DOCS / "configuration.md"}


@pytest.fixture(scope="module")
def settings() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def pages_in(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [page for item in items for page in pages_in(item)]


def test_every_page_is_in_the_navigation_once(settings) -> None:
    """And the navigation names no page that is missing."""
    named = pages_in(settings["nav"])
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page) -> None:
    """To a page of the site that exists, and to a heading on it."""
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if page.is_relative_to(DOCS):
            assert target.is_relative_to(DOCS), link
        if anchor:
            assert anchor in anchors_of(target), link


def test_the_words_of_the_glossary_are_linked() -> None:
    """Each row leads to the page that explains the word, and the rows stand in order."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", (DOCS / "glossary.md").read_text(), re.M)
    words = [word.casefold() for word, _ in rows if word != "word"]
    assert words == sorted(words)
    assert all(more.startswith("[") for word, more in rows if word != "word")


@pytest.mark.parametrize("page", [DOCS / "index.md", DOCS / "concepts.md", ROOT / "README.md"])
def test_entrances_lead_to_the_glossary(page) -> None:
    """From where a newcomer starts."""
    assert any(link.endswith("glossary.md") for link in links_of(page))


def test_pages_use_no_images_of_others() -> None:
    """Text that refers to another host is a link, never something the browser fetches."""
    for page in PAGES:
        assert not re.search(
            r"!\[[^\]]*\]\(https?:|<(?:img|script|link|iframe)\b", without_code(page)
        )


def test_the_built_site_fetches_nothing_from_elsewhere(settings, tmp_path) -> None:
    """No script, style, font, frame or image of another host, on any page."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True))
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) >= len(pages_in(settings["nav"]))
    for page in built:
        assert not fetched_by(page), page.name
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//", style.read_text("utf-8")), style.name


def fetched_by(page: Path) -> list[str]:
    """Return the addresses of other hosts that a browser would fetch for a page."""
    text = page.read_text("utf-8")
    tags = re.findall(r"<(?:script|img|iframe|link|source|video)\b[^>]*>", text)
    found = [re.search(r"\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", tag) for tag in tags]
    return [match[1] for match in found if match]
