"""Putting the pages on an application."""

from __future__ import annotations

import time
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.routing import Mount

from promptguard.config import ServiceConfig, Settings
from promptguard.controller import Controller
from promptguard.errors import ConfigError
from promptguard.service.audit import AuditLog
from promptguard.service.dashboard.access import Access
from promptguard.service.dashboard.desk import PATH, Desk

ASSETS = Path(str(files("promptguard") / "data" / "dashboard"))


def mount_dashboard(app: FastAPI, controller: Controller, settings: Settings) -> None:
    """Serve the pages under /dashboard, with / leading there.

    On an assembled service keys and audit log are the ones in force there, so that a key taken
    away by a reload ends its visits; on any other application they are those of `settings`.
    """
    try:
        from nicegui import core, ui
    except ImportError:
        raise ConfigError(
            "The dashboard needs NiceGUI: pip install 'promptguard[service]', or set "
            "service.dashboard to false."
        ) from None
    from promptguard.service.dashboard.door import Door
    from promptguard.service.dashboard.pages import register_pages

    # NiceGUI keeps one application per process; the newest of ours takes it over.
    core.app.middleware_stack = None
    core.app.user_middleware.clear()
    register_pages(ASSETS)
    ui.run_with(
        app,
        mount_path=PATH,
        title="promptguard",
        favicon=ASSETS / "favicon.svg",
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        tailwind=False,
        show_welcome_message=False,
    )
    mounted = next(r for r in app.routes if isinstance(r, Mount) and r.app is core.app)
    mounted.app = Door(core.app, _desk(app, controller, settings))
    app.add_api_route("/", _to_dashboard, include_in_schema=False)


async def _to_dashboard() -> RedirectResponse:
    return RedirectResponse(f"{PATH}/", status_code=307)


def _desk(app: FastAPI, controller: Controller, settings: Settings) -> Desk:
    from promptguard.service.app import Service

    service = getattr(app.state, "promptguard", None)

    def in_force() -> ServiceConfig:
        return service.live.service if isinstance(service, Service) else settings.service

    return Desk(
        controller=controller,
        access=Access(lambda: in_force().keys, clock=time.time),
        audit=service.audit
        if isinstance(service, Service)
        else AuditLog(settings.service.audit_file, clock=time.time),
        report=lambda: Path(in_force().quality_report),
        clock=time.time,
    )
