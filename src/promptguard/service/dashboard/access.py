"""Who sees the dashboard: the local user without keys, else whoever signed in with a key.

The cookie names the key and never holds it. It is signed with a secret that lives as long as the
process, and a key removed from the settings ends every visit made with it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote

from itsdangerous import BadData, URLSafeSerializer
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard import __version__
from promptguard.config import KeyConfig
from promptguard.controller import Controller
from promptguard.service.auth import Authenticator, Principal, local_only_error
from promptguard.service.auth import Scope as KeyScope
from promptguard.service.calls import Calls
from promptguard.service.dashboard.templates import render
from promptguard.service.decisions import Decisions
from promptguard.service.logs import AuditLog
from promptguard.service.settings import LiveSettings
from promptguard.service.what_if import WhatIf

PATH = "/dashboard"
COOKIE = "promptguard_visit"
VISIT_S = 12 * 3600
_CONTEXT = "promptguard.dashboard"
_VISITOR = "promptguard.visitor"
_MAX_FORM_BYTES = 8192
# One slash, at the beginning: `//host` would lead a browser to another site.
_OWN_PAGE = re.compile(r"/[A-Za-z0-9._~%=&?:@+-]*\Z")
# The form, and what a browser needs to draw it.
_PREFIX = b"x-forwarded-prefix"
_OPEN_PATHS = ("/login", "/assets/", "/_nicegui/", "/favicon")
_SOCKET_PATH = "/_nicegui_ws/"
# NiceGUI compiles its templates in the browser and writes its scripts into the page, so inline
# scripts and eval stay allowed; what the policy forbids is every host but our own.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_SECURITY_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
}


class Visit(NamedTuple):
    """What the cookie holds: the name and mark of a key, and an id that tells its visits apart."""

    name: str = ""
    mark: str = ""
    expires_s: float = math.inf
    id: str = ""


class Access:
    """Signs visitors in. `keys` returns the keys in force and is called at each check."""

    def __init__(
        self,
        keys: Callable[[], tuple[KeyConfig, ...]],
        *,
        clock: Callable[[], float],
        secret: bytes | None = None,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._ended: dict[str, float] = {}
        # The base64 form of 48 bytes has no spare bits, so no other text has the same signature.
        self._serializer = URLSafeSerializer(
            secret or secrets.token_bytes(32),
            salt=COOKIE,
            signer_kwargs={"digest_method": hashlib.sha384},
        )

    @property
    def needs_key(self) -> bool:
        """Whether visitors must sign in."""
        return bool(self._keys())

    def sign_in(self, key: str) -> str | None:
        """Return the cookie for a visitor with this key; None where it lacks the scope read."""
        # Only to identify: signing in takes nothing from the key's rate.
        principal = Authenticator(self._keys(), clock=self._clock).identify(key)
        if principal is None or KeyScope.READ not in principal.scopes:
            return None
        mark = next(_mark(known) for known in self._keys() if known.name == principal.name)
        visit = Visit(principal.name, mark, self._clock() + VISIT_S, secrets.token_hex(8))
        return str(self._serializer.dumps(visit))

    def sign_out(self, cookie: str | None) -> None:
        """Refuse the cookie from now on, even if someone kept a copy of it."""
        now = self._clock()
        # Those that have expired are refused anyway; so the list stays short.
        self._ended = {visit: end for visit, end in self._ended.items() if end > now}
        if (visit := self._visit(cookie)) is not None:
            self._ended[visit.id] = visit.expires_s

    def visitor(self, cookie: str | None) -> Visitor | None:
        """Return the visitor with this cookie; the local user where there are no keys."""
        if not self.needs_key:
            return Visitor(access=self, visit=Visit())
        if (visit := self._visit(cookie)) is None:
            return None
        visitor = Visitor(access=self, visit=visit)
        return visitor if visitor.may(KeyScope.READ) else None

    def _visit(self, cookie: str | None) -> Visit | None:
        """Return what a cookie holds that this process signed."""
        try:
            return Visit(*self._serializer.loads(cookie or ""))
        except (BadData, UnicodeError):
            # Any text may come as a cookie, also one that cannot be encoded.
            return None

    def principal(self, visit: Visit) -> Principal | None:
        """Return the holder of a key that is still in force, in a visit that is not ended."""
        keys = self._keys()
        # A page left open sends no cookie again, so the time is looked at here.
        if visit.id in self._ended or self._clock() >= visit.expires_s:
            return None
        if not keys:
            # A visit without a key does not go on once keys are configured, nor the other way
            # round.
            return None if visit.name else Principal()
        for known in keys:
            if known.name == visit.name and hmac.compare_digest(_mark(known), visit.mark):
                scopes = frozenset(KeyScope(scope) for scope in known.scopes)
                return Principal(name=known.name, tenant=known.tenant, scopes=scopes)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Someone with an open page, perhaps for hours: rights are looked up at each action."""

    access: Access
    visit: Visit

    @property
    def name(self) -> str:
        """The name of the visitor's key; empty for the local user."""
        return self.visit.name

    def may(self, *scopes: KeyScope) -> bool:
        """Say whether the visitor has one of the scopes now."""
        return bool(self.principal.scopes & set(scopes))

    @property
    def principal(self) -> Principal:
        """The visitor as a caller; without any scope once the visit is over."""
        known = self.access.principal(self.visit)
        # An empty tenant has no sessions, whatever a page left open still asks for.
        return known or Principal(name=self.name, tenant="", scopes=frozenset())

    @property
    def tenant(self) -> str:
        """The tenant whose sessions the visitor sees."""
        return self.principal.tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardContext:
    """What the pages of one application work with; `report` returns the report's path.

    `what_ifs` holds the newest count of each tenant, whoever started it.
    """

    controller: Controller
    access: Access
    audit: AuditLog
    decisions: Decisions
    calls: Calls
    live: LiveSettings
    report: Callable[[], Path]
    clock: Callable[[], float]
    what_ifs: dict[str, WhatIf] = field(default_factory=dict)


def context_of(request: HTTPConnection) -> DashboardContext:
    """Return the context of the application that a request came to."""
    context = request.scope.get(_CONTEXT)
    assert isinstance(context, DashboardContext), "DashboardAuth runs before every page"
    return context


def visitor_of(request: HTTPConnection) -> Visitor:
    """Return who looks at a page."""
    visitor = request.scope.get(_VISITOR)
    assert isinstance(visitor, Visitor), "DashboardAuth runs before every page"
    return visitor


def base_of(request: HTTPConnection) -> str:
    """Return the path that every link on a page begins with."""
    return str(request.scope.get("root_path", ""))


class DashboardAuth:
    """ASGI middleware around the pages: admits visitors and adds security headers."""

    def __init__(self, app: ASGIApp, context: DashboardContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a visitor on; send anyone else to the sign-in form."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        visitor = self._visitor(scope)
        if visitor is None and not _path(scope).startswith(_OPEN_PATHS):
            await self._refuse(scope, receive, send)
            return
        scope[_CONTEXT], scope[_VISITOR] = self._context, visitor
        # NiceGUI would load its scripts from where this header says, whoever sent it.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != _PREFIX]
        secured = send if scope["type"] == "websocket" else _with_security_headers(send)
        await self._app(scope, receive, secured)

    def _visitor(self, scope: Scope) -> Visitor | None:
        headers = Headers(scope=scope)
        access = self._context.access
        if not access.needs_key and not _is_local(scope, headers):
            return None
        # Browsers let pages of any origin open a websocket with our cookie, and NiceGUI lets them
        # read its answers where requests stand in for the websocket.
        is_socket = scope["type"] == "websocket" or _path(scope).startswith(_SOCKET_PATH)
        if is_socket and not _is_own_origin(headers):
            return None
        return access.visitor(HTTPConnection(scope).cookies.get(COOKIE))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._refusal(scope)(scope, receive, _with_security_headers(send))

    def _refusal(self, scope: Scope) -> Response:
        if not self._context.access.needs_key:
            return PlainTextResponse("Without API keys the pages are for this machine only.", 403)
        path = _path(scope)
        # What is no page cannot use a form; a status tells its client enough.
        if scope["method"] != "GET" or path.startswith(_SOCKET_PATH):
            return PlainTextResponse("Sign in first.", 401)
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = safe_next(f"{path}?{query}" if query else path)
        return RedirectResponse(f"{PATH}/login?next={quote(wanted, safe='')}", status_code=303)


async def show_login(request: Request) -> Response:
    """Answer with the sign-in form; where nobody needs a key, lead to the first page."""
    if not context_of(request).access.needs_key:
        return RedirectResponse(f"{base_of(request)}/", status_code=303)
    return _form(request, safe_next(request.query_params.get("next", "/")))


async def sign_in(request: Request) -> Response:
    """Take a key from the form; set the cookie and go on, or show the form again."""
    # A page elsewhere could else sign its visitors in under a key of its own.
    if not _is_own_origin(request.headers):
        return PlainTextResponse("This form is not ours.", 403)
    body = await request.body()
    if len(body) > _MAX_FORM_BYTES:
        return PlainTextResponse("This form is too long.", 413)
    fields = parse_qs(body.decode("utf-8", "replace"))
    wanted = safe_next(fields.get("next", ["/"])[0])
    cookie = context_of(request).access.sign_in(fields.get("key", [""])[0].strip())
    if cookie is None:
        return _form(request, wanted, error="This is not a key with the scope read.", status=401)
    response = RedirectResponse(f"{base_of(request)}{wanted}", status_code=303)
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=VISIT_S,
        path=base_of(request) or "/",
        httponly=True,
        samesite="lax",
        # The header comes from a proxy that ends TLS; to believe it can only make the cookie
        # stricter.
        secure=request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https",
    )
    return response


async def sign_out(request: Request) -> Response:
    """End the visit and delete its cookie."""
    context_of(request).access.sign_out(request.cookies.get(COOKIE))
    response = RedirectResponse(f"{base_of(request)}/login", status_code=303)
    response.delete_cookie(COOKIE, path=base_of(request) or "/", httponly=True, samesite="lax")
    return response


async def not_found(request: Request, _: Exception) -> Response:
    """Answer an address that is not a page of ours in the form of the site."""
    return error_page(request, "Page not found", "There is no page at this address.", 404)


async def failed(request: Request, error: Exception) -> Response:
    """Answer what cannot be read in the form of the site; monitors see it in the status."""
    return error_page(request, "This page cannot be shown", str(error), 503)


def error_page(request: Request, title: str, text: str, status: int) -> HTMLResponse:
    """Return a page that says what is wrong and leads back."""
    html = render("frame", "error", base_of(request), __version__, title, text)
    return HTMLResponse(html, status_code=status, headers={"cache-control": "no-store"})


def safe_next(wanted: str) -> str:
    """Return a path among our own pages; anything else becomes the first page."""
    return wanted if _OWN_PAGE.match(wanted) else "/"


def _form(request: Request, wanted: str, *, error: str = "", status: int = 200) -> HTMLResponse:
    html = render("frame", "login", base_of(request), __version__, wanted, error)
    return HTMLResponse(html, status_code=status, headers={"cache-control": "no-store"})


def _is_own_origin(headers: Mapping[str, str]) -> bool:
    origin = headers.get("origin")
    # Browsers send an origin with websockets and with forms of other sites; programs send none.
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_local(scope: Scope, headers: Mapping[str, str]) -> bool:
    client = scope.get("client")
    return local_only_error(headers, client[0] if client else None) is None


def _mark(known: KeyConfig) -> str:
    """Return what tells a key from its successor of the same name, without its stored hash."""
    return hashlib.sha256(f"mark:{known.sha256}".encode()).hexdigest()[:24]


def _path(scope: Scope) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root else path


def _with_security_headers(send: Send) -> Send:
    async def secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return secured
