"""The door before every page: who comes in, and what browsers are told to keep out."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard.service.dashboard.access import COOKIE, Visitor, is_local
from promptguard.service.dashboard.desk import DESK, PATH, VISITOR, Desk
from promptguard.service.dashboard.login import login_url

_OPEN = ("/login", "/assets/", "/_nicegui/", "/favicon")
_SOCKET = "/_nicegui_ws/"
# NiceGUI compiles its templates in the browser and writes its scripts into the page; what this
# policy forbids is every host but our own.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
}


class Door:
    """ASGI middleware around the pages of one application."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a visitor in, or send them to the sign-in form."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        visitor = self._visitor(scope)
        path = _path(scope)
        if visitor is None and not path.startswith(_OPEN):
            await self._refuse(scope, receive, send)
            return
        scope[DESK], scope[VISITOR] = self._desk, visitor
        await self._app(scope, receive, send if scope["type"] == "websocket" else _guarded(send))

    def _visitor(self, scope: Scope) -> Visitor | None:
        headers = Headers(scope=scope)
        client = scope.get("client")
        access = self._desk.access
        if not access.needs_key and not is_local(headers, client[0] if client else None):
            return None
        return access.visitor(cookie_in(headers))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._answer(scope)(scope, receive, _guarded(send))

    def _answer(self, scope: Scope) -> Response:
        if not self._desk.access.needs_key:
            return PlainTextResponse("Without API keys the pages are for this machine only.", 403)
        if scope["method"] != "GET" or _path(scope).startswith(_SOCKET):
            return PlainTextResponse("Sign in first.", 401)
        query = scope.get("query_string", b"").decode("latin-1")
        return RedirectResponse(login_url(PATH, _path(scope), query), status_code=303)


def cookie_in(headers: Headers) -> str | None:
    """Return the visit's cookie, None where there is none or the header is broken."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _path(scope: Scope) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def _guarded(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return answer
