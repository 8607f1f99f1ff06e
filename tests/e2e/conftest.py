"""A real service in a process of its own, and a real browser in front of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from echo_model import echo_model
from playwright.sync_api import sync_playwright
from served import ADMIN_KEY, READER_KEY, Served, serve

from promptguard.service.auth import key_hash

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here as driving a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


def browser_path() -> str | None:
    """Return an installed browser: the one PROMPTGUARD_BROWSER names, else a known one."""
    named = os.environ.get("PROMPTGUARD_BROWSER")
    return named or next((found for name in _BROWSERS if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for the whole run; without one every test here is skipped, and says so."""
    path = browser_path()
    if path is None:
        pytest.skip(
            "browser tests skipped: no Chromium found; install one (`apt-get install chromium`) "
            "or name it in PROMPTGUARD_BROWSER"
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service for the local user, with a model that answers."""
    folder = tmp_path_factory.mktemp("open")
    with echo_model() as model_url, serve(folder, model_url=model_url) as served:
        yield served


@pytest.fixture(scope="session")
def keyed_service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that asks for keys."""
    keys = [
        {"name": "boss", "sha256": key_hash(ADMIN_KEY), "scopes": ["read", "guard", "admin"]},
        {"name": "reader", "sha256": key_hash(READER_KEY), "scopes": ["read"]},
    ]
    with serve(tmp_path_factory.mktemp("keyed"), keys=keys) as served:
        yield served
