"""A visit with the browser: pages that are ready, and everything that went wrong on them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE_MS = 30_000
SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "screenshots"


class Visit:
    """One browser window at one service."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        self.opened_s: dict[str, float] = {}
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def open(self, path: str) -> Any:
        """Open a page and wait until it is connected."""
        began = time.perf_counter()
        self.page.goto(f"{self.url}/dashboard{path}")
        self.page.wait_for_selector("main h1")
        self.opened_s[path.partition("?")[0]] = time.perf_counter() - began
        self.page.wait_for_function("window.socket && window.socket.connected")
        return self.page

    def shoot(self, path: Path) -> None:
        """Keep a picture of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(path))

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self.url).netloc:
            self.faults.append(f"foreign request: {parts.netloc}")


@contextmanager
def visiting(browser: Any, url: str, *, theme: str = "dark", width: int = 1440) -> Iterator[Visit]:
    """Open a window; at its end nothing may have gone wrong in it."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    visit = Visit(context.new_page(), url)
    try:
        yield visit
        assert not visit.faults, visit.faults
    finally:
        context.close()
