"""Which page stands at which path."""

from __future__ import annotations

from pathlib import Path

from nicegui import core, ui
from starlette.requests import Request

from promptguard.service.dashboard.login import show_login, sign_in, sign_out
from promptguard.service.dashboard.playground import show_playground
from promptguard.service.dashboard.quality import show_quality
from promptguard.service.dashboard.session import show_session
from promptguard.service.dashboard.sessions import show_sessions

PATIENCE_S = 20.0


def register_pages(assets: Path) -> None:
    """Register every page with NiceGUI; calling it again changes nothing."""
    for path in ("/login", "/logout", "/assets"):
        core.app.remove_route(path)
    core.app.add_static_files("/assets", assets)
    core.app.add_route("/login", show_login, methods=["GET"])
    core.app.add_route("/login", sign_in, methods=["POST"])
    core.app.add_route("/logout", sign_out, methods=["POST"])
    for path, page in (
        ("/", sessions),
        ("/session", session),
        ("/playground", playground),
        ("/quality", quality),
    ):
        ui.page(path, response_timeout=PATIENCE_S)(page)


async def sessions(request: Request) -> None:
    """All sessions, live."""
    await show_sessions(request)


async def session(request: Request, id: str = "") -> None:  # noqa: A002  the name in the address
    """One session, explained."""
    await show_session(request, id)


async def playground(request: Request) -> None:
    """A chat to try the guard in."""
    await show_playground(request)


async def quality(request: Request) -> None:
    """How good the guard is."""
    await show_quality(request)
