"""From a URL to a store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from promptguard.errors import ConfigError, StoreError
from promptguard.stores import open_store
from promptguard.stores.memory import MemoryStore
from promptguard.stores.sqlite import SqliteStore


def test_the_scheme_chooses_the_store() -> None:
    """Opening makes the store and touches nothing."""
    assert isinstance(open_store("memory:"), MemoryStore)
    assert isinstance(open_store("sqlite:/nowhere/at/all.db"), SqliteStore)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:here.db", "here.db"),
        ("sqlite:/abs/here.db", "/abs/here.db"),
        ("sqlite:///abs/here.db", "/abs/here.db"),
        ("sqlite:a%20b.db", "a b.db"),
        ("sqlite:~nobody-of-this-name/a.db", "~nobody-of-this-name/a.db"),
    ],
)
def test_sqlite_paths_are_read_from_the_url(url: str, path: str) -> None:
    """Relative and absolute paths, with percent escapes."""
    assert SqliteStore.from_url(url)._writer._file.path == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        "sessions.db",
        "redis://secret@host",
        "memory:x",
        "sqlite:",
        "sqlite::memory:",
        "sqlite://host/x.db",
        "sqlite:x.db?synchronous=off",
        "sqlite:x.db?mode=ro",
        "sqlite:x.db#part",
        "sqlite://[x.db",
        "sqlite:x%00.db",
    ],
)
def test_a_url_that_makes_no_sense_is_a_configuration_error(url: str) -> None:
    """The message says what to write, and does not repeat what may be a secret."""
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Without psycopg the error says what to install."""
    for name in [name for name in sys.modules if name.startswith("promptguard.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"ayniguard\[postgres\]"):
        open_store(f"{scheme}://localhost/x")


def test_a_memory_store_cannot_exist_before() -> None:
    """Reading from what ends with its process is an error, not an empty list."""
    with pytest.raises(StoreError, match="keeps nothing"):
        open_store("memory:", must_exist=True)
