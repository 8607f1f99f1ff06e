"""A real gateway with the shipped readers, in front of a stand-in for a model."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from promptguard.config import ControllerConfig, ServiceConfig, Settings
from promptguard.controller import Controller
from promptguard.protocols import SessionKey, SessionQuery
from promptguard.verdict import Action, Verdict

# Nothing is to be fetched or reported by the frameworks.
os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_TRACING_ENABLED="false",
)
if (
    importlib.util.find_spec("crewai") is not None
):  # it has no other switch; our own tests need the SDK
    os.environ["OTEL_SDK_DISABLED"] = "true"
sys.path.append(str(Path(__file__).parents[1] / "service"))


class Gateway:
    """A running gateway; `upstream` answers by script and remembers what reached it."""

    def __init__(self, url: str, upstream: Any, controller: Controller) -> None:
        self.url = url
        self.upstream = upstream
        self._store = controller.store
        self._seen: set[tuple[str, int]] = set()

    def stopped(self) -> list[str]:
        """Return what was blocked or stripped since the last call, each with its evidence."""
        with ThreadPoolExecutor(1) as thread:  # the test may run in a loop of its own
            new = thread.submit(asyncio.run, self._new_verdicts()).result()
        return [
            f"{verdict.action} {verdict.turn_risk:.2f}: {text}\n  {reasons(verdict)}"
            for text, verdict in new
            if verdict.action in (Action.BLOCK, Action.STRIP)
        ]

    async def _new_verdicts(self) -> list[tuple[str, Verdict]]:
        found = []
        for state in await self._store.sessions(SessionQuery(tenant=None)):
            key = SessionKey(session_id=state.session_id, tenant=state.tenant)
            for entry in await self._store.transcript(key):
                name = (state.session_id, entry.position)
                if entry.verdict and name not in self._seen:
                    self._seen.add(name)
                    found.append((entry.content or "", Verdict.from_json(entry.verdict)))
        return found


def reasons(verdict: Verdict) -> str:
    """Return what speaks most for an attack."""
    return "; ".join(f"{e.signal} {e.nats:+.1f}: {e.reason}" for e in verdict.top_evidence[:4])


@contextmanager
def serving(
    upstream_url: str, *, block_style: str = "refusal", **conversation: Any
) -> Iterator[tuple[str, Controller]]:
    """Run the service as it is shipped, on loopback; gives its address and its controller."""
    from live_server import running

    from promptguard.service.app import Service, open_parts
    from promptguard.service.server import open_server

    settings = Settings(
        conversation=ControllerConfig(store="memory:", **conversation),
        service=ServiceConfig(
            upstream=f"{upstream_url}/v1",
            port=0,
            demo=False,
            dashboard=False,
            block_style=block_style,
        ),
    )
    parts = open_parts(settings, lambda: settings)
    with running(lambda on_ready: open_server(Service(parts), on_ready)) as (_, port):
        yield f"http://127.0.0.1:{port}", parts.controller


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """A gateway with the default settings."""
    pytest.importorskip("uvicorn", reason="needs the service")
    from live_server import live_upstream
    from stub_upstream import StubUpstream

    upstream = StubUpstream()
    with live_upstream(upstream) as base, serving(base) as (url, controller):
        yield Gateway(f"{url}/v1", upstream, controller)
