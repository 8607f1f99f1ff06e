"""The reference of the service's own API, made from its OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from promptguard import __version__
from promptguard.service.dashboard.templates import render
from promptguard.service.manual import page_headers

API = "/docs"


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


def add_reference(app: FastAPI, *, has_manual: bool) -> None:
    """Serve the reference at /docs."""

    async def reference(_: Request) -> HTMLResponse:
        # Made at each visit: FastAPI keeps the description, and routes are added after this.
        html = render("api", "page", operations_of(app.openapi()), __version__, has_manual)
        return HTMLResponse(html, headers=page_headers())

    app.add_route(API, reference, methods=["GET"], include_in_schema=False)


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
