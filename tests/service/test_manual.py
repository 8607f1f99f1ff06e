"""The documentation that the service serves beside its API."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from promptguard.service import app, manual
from promptguard.service.manual import Manual, the_manual

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Manual:
    """A manual of two pages with a picture."""
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "images").mkdir()
    (docs / "images" / "seen.png").write_bytes(b"\x89PNG")
    (docs / "secret.md").write_text("# Secret\n\nNot in the navigation.\n")
    (docs / "index.md").write_text("# Start\n\nSee [more](deep/more.md#what-it-is).\n")
    (docs / "deep" / "more.md").write_text(
        "# More\n\n<!-- for tests -->\n## What *it* `is`\n\n| a | b |\n|---|---|\n| 1 | `x<y` |\n\n"
        "## What it is\n\nThe word *quokka* stands\nhere <once>.\n\n```python\nwombat()\n```\n"
    )
    navigation = tmp_path / "mkdocs.yml"
    navigation.write_text("nav:\n  - Start: index.md\n  - Deep:\n      - deep/more.md\n")
    return Manual(docs, navigation)


@pytest.fixture
async def served(guarded, small: Manual, monkeypatch):
    monkeypatch.setattr(app, "the_manual", lambda: small)
    return (await guarded()).client


async def test_every_page_of_the_documentation_is_served(guarded) -> None:
    """From a checkout; each in the navigation of all, with its links and pictures leading on."""
    client = (await guarded()).client
    first = await client.get("/manual/")
    paths = [path for _, pages in the_manual().groups for path, _ in pages]
    assert len(paths) > 40
    for path in paths:
        page = await client.get(f"/manual/{path}")
        assert page.status_code == 200, path
        assert page.text.count("<h1") == 1, path
        assert f'href="{path}"' in first.text
    for image in re.findall(r'src="([^"]+)"', (await client.get("/manual/dashboard.md")).text):
        assert (await client.get(f"/manual/{image}")).headers["content-type"] == "image/png"


async def test_a_page_is_rendered_with_its_headings_tables_and_code(served) -> None:
    """Headings can be linked to, also two that read alike; comments are not shown."""
    page = (await served.get("/manual/deep/more.md")).text
    assert '<h2 id="what-it-is">What <em>it</em> <code>is</code></h2>' in page
    assert '<h2 id="what-it-is_1">What it is</h2>' in page
    assert "<td><code>x&lt;y</code></td>" in page
    assert "<title>More · promptguard</title>" in page
    assert 'href="../index.md"' in page
    assert (await served.get("/manual/favicon.svg")).headers["content-type"] == "image/svg+xml"
    assert 'href="deep/more.md#what-it-is"' in (await served.get("/manual/")).text


async def test_pages_run_no_script_and_fetch_nothing_from_elsewhere(served) -> None:
    """By their policy; a missing page likewise."""
    for path in ("/manual/", "/manual/nothing.md", "/manual/images/seen.png", "/docs"):
        answer = await served.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src 'self';")
        assert "script" not in policy
        assert "<script" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "path",
    ["nothing", "secret.md", "../mkdocs.yml", "%2e%2e/mkdocs.yml", "..%2fmkdocs.yml", "images/"],
)
async def test_nothing_but_pages_and_pictures_is_served(served, path: str) -> None:
    """However the address is written; the page that says so leads on."""
    answer = await served.get(f"/manual/{path}")
    assert answer.status_code == 404
    assert "nav:" not in answer.text
    assert "Not in the navigation" not in answer.text


async def test_an_address_without_end_gets_a_short_answer(served) -> None:
    """The way back to the pages does not repeat all of it in every link."""
    assert len((await served.get("/manual/" + "/" * 10_000)).content) < 20_000


async def test_the_address_without_a_slash_leads_to_the_first_page(served) -> None:
    """As people type it."""
    answer = await served.get("/manual", follow_redirects=True)
    assert answer.url.path == "/manual/"
    assert "<h1" in answer.text


async def test_search_finds_the_sections_that_hold_every_word(served) -> None:
    """In text and code, whatever the case, with a link to the section."""
    for words in ("quokka", "QUOKKA word", "wombat()"):
        answer = await served.get("/manual/index.md", params={"q": words})
        assert 'href="deep/more.md#what-it-is_1"' in answer.text, words
        assert "1 place with" in answer.text
    answer = await served.get("/manual/index.md", params={"q": "quokka start"})
    assert "0 places with" in answer.text


async def test_what_is_searched_for_is_only_text(served) -> None:
    """Markup in a query and in a found text is shown, never followed; blank is no search."""
    answer = await served.get("/manual/index.md", params={"q": "<b onclick=x>"})
    assert "<b onclick" not in answer.text
    assert "&lt;once&gt;" in (await served.get("/manual/index.md", params={"q": "quokka"})).text
    assert "Start</h1>" in (await served.get("/manual/index.md", params={"q": "  "})).text
    assert (await served.get("/manual/", params={"q": "x" * 5000})).status_code == 200


def test_hits_in_headings_come_first() -> None:
    """A word of the product leads to the section about it."""
    found = the_manual().search("webhooks")
    assert "webhooks" in found[0].section.casefold()


def test_an_installed_package_has_the_manual_in_its_data(tmp_path, monkeypatch) -> None:
    """It goes before a folder that happens to lie beside the package."""
    packed = tmp_path / "lib" / "promptguard" / "data" / "manual"
    packed.mkdir(parents=True)
    (packed / "index.md").write_text("# Packed\n")
    (packed / "mkdocs.yml").write_text("nav:\n  - Start: index.md\n")
    shutil.copytree(packed, tmp_path / "docs")
    monkeypatch.setattr(manual, "files", lambda _: tmp_path / "lib" / "promptguard")
    found = the_manual.__wrapped__()
    assert found.page("index.md").title == "Packed"


async def test_without_pages_there_is_the_reference_alone(guarded, monkeypatch, tmp_path) -> None:
    """The service starts, and says nothing of a manual."""
    monkeypatch.setattr(manual, "files", lambda _: tmp_path / "lib" / "promptguard")
    assert the_manual.__wrapped__() is None
    monkeypatch.setattr(app, "the_manual", lambda: None)
    client = (await guarded()).client
    assert (await client.get("/manual/")).status_code == 404
    assert "/manual/" not in (await client.get("/docs")).text


async def test_the_reference_names_every_route(served) -> None:
    """From the same description as /openapi.json."""
    answer = await served.get("/docs")
    described = (await served.get("/openapi.json")).json()
    assert all(f"<code>{path}</code>" in answer.text for path in described["paths"])
    assert "false_positive_budget" in answer.text
    assert 'href="/manual/"' in answer.text


async def test_strangers_get_no_documentation_from_a_local_service(served) -> None:
    """Without keys the service is for this machine alone, documentation included."""
    for path in ("/docs", "/manual/"):
        answer = await served.get(path, headers={"host": "guard.example"})
        assert answer.status_code == 403
