"""The documentation that the service serves: the built site, and the reference of its own API.

Both come from this host alone; their content security policies allow nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.datastructures import MutableHeaders
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptguard import __version__
from promptguard.service.dashboard.templates import render

MANUAL, API = "/manual", "/docs"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
}
_CLOSED = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_API_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; {_CLOSED}"
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route as the reference shows it; `fields` are (name, type, is_required, text)."""

    method: str
    path: str
    summary: str
    text: str
    group: str
    fields: tuple[tuple[str, str, bool, str], ...] = ()
    answers: tuple[tuple[str, str], ...] = ()


def mount_manual(app: FastAPI, configured: str) -> None:
    """Serve the reference at /docs, and the site at /manual/ where it was built."""
    folder = manual_folder(configured)

    async def reference(_: Request) -> HTMLResponse:
        body = app.openapi()
        html = render("api", "page", operations_of(body), __version__, folder is not None)
        return HTMLResponse(html, headers=_HEADERS | {"content-security-policy": _API_POLICY})

    app.add_route(API, reference, methods=["GET"], include_in_schema=False)
    if folder is not None:
        site = StaticFiles(directory=folder, html=True)
        app.mount(MANUAL, _Secured(site, _policy_of(folder)), name="manual")


def manual_folder(configured: str) -> Path | None:
    """Return the built site: the configured one, else the package's own; None without any."""
    for folder in (Path(configured), Path(str(files("promptguard") / "data" / "manual"))):
        if (folder / "index.html").is_file():
            return folder
    return None


def operations_of(body: Mapping[str, object]) -> tuple[Operation, ...]:
    """Return the routes of an OpenAPI description, in its order."""
    return tuple(
        Operation(
            method=method.upper(),
            path=path,
            summary=str(route.get("summary", "")),
            text=str(route.get("description", "")),
            group=str(next(iter(_listed(route.get("tags"))), "service")),
            fields=tuple(_fields(body, route)),
            answers=tuple(
                (str(status), str(_mapped(answer).get("description", "")))
                for status, answer in _mapped(route.get("responses")).items()
            ),
        )
        for path, methods in _mapped(body.get("paths")).items()
        for method, route in ((name, _mapped(found)) for name, found in _mapped(methods).items())
    )


class _Secured:
    """ASGI middleware that adds the security headers."""

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self._app = app
        self._headers = _HEADERS | {"content-security-policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, secured)


def _policy_of(folder: Path) -> str:
    """Return the policy of a site: its own files, and the inline scripts that it was built with."""
    scripts = {
        script
        for page in folder.rglob("*.html")
        for script in _INLINE_SCRIPT.findall(page.read_bytes())
    }
    hashes = sorted(
        f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'self'; script-src 'self' {' '.join(hashes)}; "
        f"style-src 'self' 'unsafe-inline'; img-src 'self' data:; worker-src 'self'; {_CLOSED}"
    )


def _fields(
    body: Mapping[str, object], route: Mapping[str, object]
) -> Iterator[tuple[str, str, bool, str]]:
    """Yield the parameters of a route and the fields of its body."""
    for given in map(_mapped, _listed(route.get("parameters"))):
        kind = _type_of(body, _mapped(given.get("schema")))
        text = str(given.get("description", ""))
        yield str(given.get("name", "")), kind, bool(given.get("required")), text
    content = _mapped(_mapped(route.get("requestBody")).get("content"))
    schema = _resolved(body, _mapped(_mapped(content.get("application/json")).get("schema")))
    required = set(map(str, _listed(schema.get("required"))))
    for name, found in _mapped(schema.get("properties")).items():
        field = _mapped(found)
        yield name, _type_of(body, field), name in required, str(field.get("description", ""))


def _type_of(body: Mapping[str, object], schema: Mapping[str, object]) -> str:
    """Return a schema's type in a few words."""
    if choices := _listed(schema.get("anyOf")):
        return " or ".join(_type_of(body, _mapped(choice)) for choice in choices)
    if values := _listed(schema.get("enum")):
        return " | ".join(map(str, values))
    if reference := str(schema.get("$ref", "")):
        return reference.rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {_type_of(body, _mapped(schema.get('items')))}"
    return str(schema.get("type", "any"))


def _resolved(body: Mapping[str, object], schema: Mapping[str, object]) -> Mapping[str, object]:
    """Return the schema that a reference names."""
    chosen = next((c for c in map(_mapped, _listed(schema.get("anyOf"))) if "$ref" in c), schema)
    name = str(chosen.get("$ref", "")).rpartition("/")[2]
    if not name:
        return chosen
    return _mapped(_mapped(_mapped(body.get("components")).get("schemas")).get(name))


def _mapped(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
