"""The documentation that the service serves beside its API."""

from __future__ import annotations

import base64
import hashlib

import pytest

from promptguard.service.manual import manual_folder

SCRIPT = "document.documentElement.dataset.x = 1"


@pytest.fixture
def site(tmp_path) -> str:
    (tmp_path / "guide").mkdir()
    (tmp_path / "index.html").write_text(f"<h1>Manual</h1><script>{SCRIPT}</script>")
    (tmp_path / "guide" / "index.html").write_text("<h1>Guide</h1>")
    (tmp_path / "404.html").write_text("<h1>No such page</h1>")
    return str(tmp_path)


async def test_the_built_site_is_served_with_a_strict_policy(guarded, site: str) -> None:
    """Pages of folders, a page of its own for what is missing, and no other host."""
    guard = await guarded(service={"docs_folder": site})
    first = await guard.client.get("/manual/")
    assert first.status_code == 200
    assert "<h1>Manual</h1>" in first.text
    assert "Guide" in (await guard.client.get("/manual/guide/")).text
    missing = await guard.client.get("/manual/nothing")
    assert (missing.status_code, "No such page" in missing.text) == (404, True)
    policy = first.headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}'" in policy
    assert "http" not in policy
    for answer in (first, missing):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


async def test_nothing_outside_the_site_is_served(guarded, site: str, tmp_path) -> None:
    """However the address is written."""
    (tmp_path.parent / "secret.txt").write_text("secret")
    guard = await guarded(service={"docs_folder": site})
    for path in ("/manual/../secret.txt", "/manual/%2e%2e/secret.txt", "/manual/..%2fsecret.txt"):
        assert "secret" not in (await guard.client.get(path)).text


async def test_without_a_site_there_is_the_reference_alone(guarded, tmp_path) -> None:
    """The service starts, and says nothing of a manual."""
    assert manual_folder(str(tmp_path)) is None
    guard = await guarded(service={"docs_folder": str(tmp_path)})
    assert (await guard.client.get("/manual/")).status_code == 404
    assert "/manual/" not in (await guard.client.get("/docs")).text


async def test_the_reference_names_every_route_and_runs_no_script(guarded, site: str) -> None:
    """From the same description as /openapi.json."""
    guard = await guarded(service={"docs_folder": site})
    answer = await guard.client.get("/docs")
    described = (await guard.client.get("/openapi.json")).json()
    assert all(f"<code>{path}</code>" in answer.text for path in described["paths"])
    assert "false_positive_budget" in answer.text
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert 'href="/manual/"' in answer.text


async def test_strangers_get_no_documentation_from_a_local_service(guarded, site: str) -> None:
    """Without keys the service is for this machine alone, documentation included."""
    guard = await guarded(service={"docs_folder": site})
    for path in ("/docs", "/manual/"):
        answer = await guard.client.get(path, headers={"host": "guard.example"})
        assert answer.status_code == 403
