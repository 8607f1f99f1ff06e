"""Mounts the dashboard on an application and registers its pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.routing import Mount

from promptguard.controller import Controller
from promptguard.errors import ConfigError, PromptGuardError
from promptguard.model.artifact import bundled
from promptguard.service.calls import Calls
from promptguard.service.decisions import Decisions
from promptguard.service.logs import AuditLog
from promptguard.service.settings import LiveSettings

PAGE_TIMEOUT_S = 20.0


def mount_dashboard(
    app: FastAPI,
    controller: Controller,
    live: LiveSettings,
    audit: AuditLog,
    decisions: Decisions,
    calls: Calls,
    *,
    clock: Callable[[], float] = time.time,
) -> None:
    """Serve the pages under /dashboard, with / leading there.

    `live` holds the settings in force, so that a key removed by a reload ends its visits.
    """
    try:
        from nicegui import core, ui
    except ImportError:
        raise ConfigError(
            "The dashboard needs NiceGUI: pip install 'ayniguard[service]', or set "
            "service.dashboard to false."
        ) from None
    from promptguard.service.dashboard.access import PATH, Access, DashboardAuth, DashboardContext
    from promptguard.service.dashboard.templates import ASSETS

    # NiceGUI keeps one application per process; the newest of ours takes it over.
    core.app.middleware_stack = None
    core.app.user_middleware.clear()
    _register_pages(ASSETS)
    ui.run_with(
        app,
        mount_path=PATH,
        title="promptguard",
        favicon=ASSETS / "favicon.svg",
        dark=None,
        language="en-US",
        # Nothing here is bound to values, so NiceGUI need not look for changes.
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        tailwind=False,
        show_welcome_message=False,
    )
    context = DashboardContext(
        controller=controller,
        access=Access(lambda: live.current.service.keys, clock=clock),
        audit=audit,
        decisions=decisions,
        calls=calls,
        live=live,
        report=lambda: _report_of(live.current.service.quality_report),
        clock=clock,
    )
    mounted = next(r for r in app.routes if isinstance(r, Mount) and r.app is core.app)
    # NiceGUI mounts its application itself, so the check is put around it afterwards.
    mounted.app = DashboardAuth(core.app, context)
    app.add_api_route("/", _to_dashboard, include_in_schema=False)


def _report_of(configured: str) -> Path:
    """Return the configured report where it is there, else the one that ships with the model."""
    path = Path(configured)
    return path if path.is_file() else bundled().folder / "measured.json"


def _register_pages(assets: Path) -> None:
    """Register every page with NiceGUI; calling it again changes nothing."""
    from nicegui import core, ui

    from promptguard.service.dashboard.access import (
        failed,
        not_found,
        show_login,
        sign_in,
        sign_out,
    )
    from promptguard.service.dashboard.export import export_session, export_sessions
    from promptguard.service.dashboard.overview import show_overview
    from promptguard.service.dashboard.playground import show_playground
    from promptguard.service.dashboard.quality import show_quality
    from promptguard.service.dashboard.review import show_review
    from promptguard.service.dashboard.session import show_session
    from promptguard.service.dashboard.sessions import show_sessions

    # Routes of an earlier service in this process would answer with that service's pages.
    routes = (
        ("/export/sessions", export_sessions, "GET"),
        ("/export/session", export_session, "GET"),
        ("/login", show_login, "GET"),
        ("/login", sign_in, "POST"),
        ("/logout", sign_out, "POST"),
    )
    for path in ("/assets", *(path for path, *_ in routes)):
        core.app.remove_route(path)
    core.app.add_exception_handler(404, not_found)
    core.app.add_exception_handler(PromptGuardError, failed)
    core.app.add_static_files("/assets", assets)
    for path, answer, method in routes:
        core.app.add_route(path, answer, methods=[method])
    for path, page in (
        ("/", show_overview),
        ("/sessions", show_sessions),
        ("/session", show_session),
        ("/review", show_review),
        ("/playground", show_playground),
        ("/quality", show_quality),
    ):
        ui.page(path, response_timeout=PAGE_TIMEOUT_S)(page)


async def _to_dashboard() -> RedirectResponse:
    return RedirectResponse("/dashboard/", status_code=307)
