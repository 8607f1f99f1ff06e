"""What the pages work with: one value for each application, found again by every request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import HTTPConnection

from promptguard.controller import Controller
from promptguard.service.audit import AuditLog
from promptguard.service.dashboard.access import Access, Visitor

DESK = "promptguard.desk"
VISITOR = "promptguard.visitor"
PATH = "/dashboard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The controller behind the pages, who may see them, and where the report now lies."""

    controller: Controller
    access: Access
    audit: AuditLog
    report: Callable[[], Path]
    clock: Callable[[], float]


def desk_of(request: HTTPConnection) -> Desk:
    """Return the desk of the application that a request came to."""
    desk = request.scope.get(DESK)
    assert isinstance(desk, Desk), "the door stands before every page"
    return desk


def visitor_of(request: HTTPConnection) -> Visitor:
    """Return who looks at a page."""
    visitor = request.scope.get(VISITOR)
    assert isinstance(visitor, Visitor), "the door stands before every page"
    return visitor


def base_of(request: HTTPConnection) -> str:
    """Return what every link on a page begins with."""
    return str(request.scope.get("root_path", ""))
