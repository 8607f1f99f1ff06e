"""`promptguard sessions list`: what its limit takes, and which ids it finds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptguard.cli.sessions import sessions
from promptguard.queries import plain_id
from promptguard.state import SessionState
from promptguard.stores import open_store


@pytest.mark.parametrize("limit", ["-3", "0", "9" * 20])
def test_a_limit_out_of_range_is_refused(limit: str) -> None:
    """It would list everything or nothing, or be more than a store can count."""
    result = CliRunner().invoke(sessions, ["list", "--limit", limit])
    assert result.exit_code == 2
    assert "1<=x<=1000000" in result.output


@pytest.mark.parametrize("stored", ["team/1", plain_id("team/1")])
def test_an_id_is_found_by_part_of_it_as_it_was_given(tmp_path: Path, stored: str) -> None:
    """The service stores odd ids in a plain form, a program that uses the library does not."""
    (found,) = json.loads(listed(tmp_path, stored, "--json", "--contains", "team/"))
    assert found["session_id"] == stored


def listed(tmp_path: Path, stored: str, *options: str) -> str:
    """Return what `sessions list` prints of a store with one session."""
    url = f"sqlite:{tmp_path / 's.db'}"

    async def save() -> None:
        store = open_store(url)
        await store.save(SessionState(session_id=stored, version=1), expected_version=0)
        await store.close()

    asyncio.run(save())
    config = tmp_path / "c.yaml"
    config.write_text(f"conversation: {{store: '{url}'}}\n", encoding="utf-8")
    words = ["--config", str(config), "list", *options]
    return CliRunner().invoke(sessions, words, catch_exceptions=False).stdout
