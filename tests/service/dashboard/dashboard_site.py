"""The dashboard on an application of its own, spoken to without a network."""

from __future__ import annotations

import html
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from promptguard.config import ControllerConfig, KeyConfig, ServiceConfig, Settings
from promptguard.controller import Controller
from promptguard.service.auth import key_hash
from promptguard.service.dashboard import mount_dashboard
from promptguard.service.telemetry import AuditLog
from promptguard.stores.memory import MemoryStore
from promptguard.testing import FakeEncoder
from promptguard.turns.judge import TurnJudge

READ_KEY, FULL_KEY, GUARD_KEY = "pg_reader", "pg_full", "pg_guard"
KEYS = (
    KeyConfig(name="reader", sha256=key_hash(READ_KEY), scopes=("read",)),
    KeyConfig(name="full", sha256=key_hash(FULL_KEY), scopes=("read", "guard", "admin")),
    KeyConfig(name="app", sha256=key_hash(GUARD_KEY), scopes=("guard",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running dashboard, its controller, and a browser without scripts."""

    controller: Controller
    client: httpx.AsyncClient
    app: FastAPI

    async def page(self, path: str) -> str:
        """Return a page's text with the escapes of its data undone."""
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.status_code
        return html.unescape(answer.text)

    async def websocket(self, cookie: str, origin: str) -> str:
        """Open the pages' websocket; return the kind of the first message that comes back."""
        headers = [
            (b"host", b"127.0.0.1:8787"),
            (b"origin", origin.encode()),
            (b"connection", b"upgrade"),
            (b"upgrade", b"websocket"),
        ]
        scope = {
            "type": "websocket",
            "path": "/dashboard/_nicegui_ws/socket.io/",
            "raw_path": b"/dashboard/_nicegui_ws/socket.io/",
            "query_string": b"EIO=4&transport=websocket",
            "root_path": "",
            "scheme": "ws",
            "headers": [*headers, (b"cookie", cookie.encode())],
            "client": ("127.0.0.1", 4711),
            "server": ("127.0.0.1", 8787),
            "subprotocols": [],
        }
        sent: list[str] = []
        received = iter([{"type": "websocket.connect"}])

        async def receive() -> dict[str, object]:
            return next(received, {"type": "websocket.disconnect", "code": 1000})

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await self.app(scope, receive, send)
        return sent[0]


@asynccontextmanager
async def open_site(
    *, keys: tuple[KeyConfig, ...] = (), peer: str = "127.0.0.1", report: str = "absent.json"
) -> AsyncIterator[Site]:
    """Run a dashboard for as long as the block lasts."""
    config = ControllerConfig(store="memory:")
    settings = Settings(
        conversation=config, service=ServiceConfig(keys=keys, quality_report=report)
    )
    judge = TurnJudge.open(config, encoder=FakeEncoder())
    controller = Controller(config, store=MemoryStore(), judge=judge)
    app = FastAPI()
    audit = AuditLog(None, clock=time.time)
    mount_dashboard(app, controller, lambda: settings.service, audit)
    transport = httpx.ASGITransport(app=app, client=(peer, 4711))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client,
    ):
        yield Site(controller=controller, client=client, app=app)
