"""`promptguard serve` in a process of its own, on a free port and a store that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

ADMIN_KEY, READER_KEY = "pg_e2e_admin", "pg_e2e_reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running service."""

    url: str

    def say(self, session_id: str, text: str, *, key: str = "") -> dict[str, Any]:
        """Judge one turn as an application would, from outside the browser."""
        answer = httpx.post(
            f"{self.url}/v1/guard/turn",
            json={"session_id": session_id, "user_input": text},
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=60,
        )
        answer.raise_for_status()
        return dict(answer.json())

    def session(self, session_id: str) -> dict[str, Any]:
        """Return a stored session."""
        answer = httpx.get(f"{self.url}/v1/sessions/{session_id}", timeout=30)
        answer.raise_for_status()
        return dict(answer.json())


@contextmanager
def serve(
    folder: Path,
    *,
    model_url: str | None = None,
    keys: Sequence[dict[str, Any]] = (),
    store: str | None = None,
    **service: Any,
) -> Iterator[Served]:
    """Run the service until the block ends; `service` are further settings of it."""
    conversation: dict[str, Any] = {"store": store or f"sqlite:{folder / 'guard.db'}"}
    if model_url is not None:
        conversation["model"] = "ollama/echo"
        conversation["endpoint"] = {"base_urls": {"ollama": model_url}}
    settings = {
        "version": 1,
        "conversation": conversation,
        "service": {
            "port": 0,
            "demo": False,
            "keys": list(keys),
            "shutdown_s": 2,
            "log_level": "warning",
            "quality_report": str(folder / "report.json"),
            **service,
        },
    }
    config = folder / "promptguard.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    log = folder / "service.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "promptguard", "serve", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield Served(url=_announced(process, log))
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _announced(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if "listens on " in line:
            return line.split("listens on ")[1].strip()
    raise AssertionError(f"the service did not start:\n{log.read_text(encoding='utf-8')}")
