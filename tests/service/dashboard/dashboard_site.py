"""The dashboard on an application of its own, spoken to without a network."""

from __future__ import annotations

import html
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from promptguard.config import ControllerConfig, KeyConfig, ServiceConfig, Settings
from promptguard.controller import Controller
from promptguard.service.auth import Authenticator, key_hash
from promptguard.service.calls import Calls
from promptguard.service.dashboard import mount_dashboard
from promptguard.service.dashboard.access import Access, DashboardContext, Visitor
from promptguard.service.dashboard.components import Page, Tag
from promptguard.service.decisions import Decisions
from promptguard.service.lanes import LaneExecutor, lane_limits
from promptguard.service.logs import AuditLog
from promptguard.service.settings import LiveSettings, Reloader
from promptguard.service.telemetry import Telemetry, Tracing
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


def context_for(
    site: Site,
    *,
    keys: tuple[KeyConfig, ...] = (),
    trail: Path | None = None,
    **service: Any,
) -> DashboardContext:
    """What pages work with that are built without a request; `trail` is the audit file."""
    audit = AuditLog(None if trail is None else str(trail), clock=time.time)
    live = LiveSettings(
        Settings(conversation=site.controller.config, service=ServiceConfig(keys=keys, **service))
    )
    decisions = Decisions(site.controller, audit, clock=time.time)
    reloader = Reloader(
        live,
        lambda: live.written,
        controller=site.controller,
        authenticator=Authenticator(keys, clock=time.time),
        telemetry=Telemetry(tracing=Tracing(None)),
        audit=audit,
        overlay=decisions.overlaid,
    )
    decisions.reapply = reloader.reapply
    return DashboardContext(
        controller=site.controller,
        access=Access(lambda: keys, clock=time.time),
        audit=audit,
        decisions=decisions,
        calls=calls_of(live),
        live=live,
        report=lambda: Path("absent.json"),
        clock=time.time,
    )


def calls_of(live: LiveSettings) -> Calls:
    """Calls that are computed in this process."""
    lanes = LaneExecutor(lane_limits(live.current.service))
    return Calls(live=live, lanes=lanes, child=None)


def visitor_in(context: DashboardContext, key: str = "") -> Visitor:
    """The visitor with a key, or the local one."""
    found = context.access.visitor(context.access.sign_in(key) if key else None)
    assert found is not None
    return found


def page_in(context: DashboardContext, key: str = "", base: str = "") -> Page:
    """An open page of the visitor with a key, or of the local one."""
    visitor = visitor_in(context, key)
    return Page(context=context, visitor=visitor, base=base, live=Tag("span"), spoken=Tag("p"))


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
    decisions = Decisions(controller, audit, clock=time.time)
    live = LiveSettings(settings)
    mount_dashboard(app, controller, live, audit, decisions, calls_of(live))
    transport = httpx.ASGITransport(app=app, client=(peer, 4711))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client,
    ):
        yield Site(controller=controller, client=client, app=app)
