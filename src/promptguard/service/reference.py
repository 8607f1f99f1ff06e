"""The reference of the service's own API, made from its OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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


def operations_of(body: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return the routes of an OpenAPI description, in its order."""
    return tuple(
        Operation(
            method=method.upper(),
            path=path,
            summary=route.get("summary", ""),
            text=route.get("description", ""),
            group=route.get("tags", ("service",))[0],
            fields=tuple(_fields(body, route)),
            answers=tuple(
                (status, answer.get("description", ""))
                for status, answer in route["responses"].items()
            ),
        )
        for path, methods in body["paths"].items()
        for method, route in methods.items()
    )


def _fields(
    body: Mapping[str, Any], route: Mapping[str, Any]
) -> Iterator[tuple[str, str, bool, str]]:
    """Yield the parameters of a route and the fields of its body."""
    for given in route.get("parameters", ()):
        kind, text = _type_of(given["schema"]), given.get("description", "")
        yield given["name"], kind, given["required"], text
    content = route.get("requestBody", {}).get("content", {})
    schema = _resolved(body, content.get("application/json", {}).get("schema", {}))
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield name, _type_of(field), name in required, field.get("description", "")


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return a schema's type in a few words."""
    if choices := schema.get("anyOf"):
        return " or ".join(map(_type_of, choices))
    if values := schema.get("enum"):
        return " | ".join(map(str, values))
    if reference := schema.get("$ref"):
        return str(reference).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {_type_of(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _resolved(body: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference names."""
    chosen = next((each for each in schema.get("anyOf", ()) if "$ref" in each), schema)
    if "$ref" not in chosen:
        return chosen
    found: Mapping[str, Any] = body["components"]["schemas"][chosen["$ref"].rpartition("/")[2]]
    return found
