"""The sign-in form: a plain page that takes a key and gives a cookie."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from promptguard.service.dashboard.access import COOKIE, VISIT_S
from promptguard.service.dashboard.desk import base_of, desk_of
from promptguard.service.dashboard.layout import SHIELD, head_html
from promptguard.service.dashboard.markup import esc, notice

_LONGEST_FORM = 8192
_NEXT = re.compile(r"/[A-Za-z0-9._~%=&?:@+-]*\Z")


def login_url(base: str, path: str, query: str) -> str:
    """Return where to sign in, and then go on to `path`."""
    wanted = f"{path}?{query}" if query else path
    return f"{base}/login?next={quote(safe_next(wanted), safe='')}"


def safe_next(wanted: str) -> str:
    """Return a place among our own pages; anything else is the first of them."""
    return wanted if _NEXT.match(wanted) else "/"


async def show_login(request: Request) -> Response:
    """Answer with the form; where nobody needs a key, with the first page."""
    if not desk_of(request).access.needs_key:
        return RedirectResponse(f"{base_of(request)}/", status_code=303)
    return _form(request, safe_next(request.query_params.get("next", "/")))


async def sign_in(request: Request) -> Response:
    """Take a key; give the cookie and go on, or show the form again."""
    if not _is_own_form(request):
        return PlainTextResponse("This form is not ours.", 403)
    body = await request.body()
    if len(body) > _LONGEST_FORM:
        return PlainTextResponse("This form is too long.", 413)
    fields = parse_qs(body.decode("utf-8", "replace"))
    wanted = safe_next(fields.get("next", ["/"])[0])
    cookie = desk_of(request).access.sign_in(fields.get("key", [""])[0].strip())
    if cookie is None:
        return _form(request, wanted, fault="This is not a key with the scope read.", status=401)
    answer = RedirectResponse(f"{base_of(request)}{wanted}", status_code=303)
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=VISIT_S,
        path=base_of(request) or "/",
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https",
    )
    return answer


async def sign_out(request: Request) -> Response:
    """End the visit."""
    answer = RedirectResponse(f"{base_of(request)}/login", status_code=303)
    answer.delete_cookie(COOKIE, path=base_of(request) or "/", httponly=True, samesite="lax")
    return answer


def _is_own_form(request: Request) -> bool:
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _form(request: Request, wanted: str, *, fault: str = "", status: int = 200) -> HTMLResponse:
    base = base_of(request)
    said = f'<div role="alert">{notice(fault, kind="bad")}</div>' if fault else ""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sign in · promptguard'
        f'</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="{esc(base)}/assets/favicon.svg">{head_html(base)}</head>'
        f'<body class="signin"><main class="panel">'
        f'<h1 class="brand">{SHIELD}promptguard</h1><p class="quiet">Sign in with an API key that '
        f"has the scope <code>read</code>. Labels need <code>guard</code> or <code>admin</code> "
        f"as well.</p>"
        f'{said}<form method="post" action="{esc(base)}/login">'
        f'<input type="hidden" name="next" value="{esc(wanted)}">'
        f'<label for="key">API key</label>'
        f'<input id="key" name="key" type="password" autocomplete="current-password" required '
        f'autofocus><button class="button primary" type="submit">Sign in</button></form>'
        f"</main></body></html>",
        status_code=status,
        headers={"cache-control": "no-store"},
    )
