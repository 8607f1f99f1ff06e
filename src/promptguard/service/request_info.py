"""What earlier layers noted on a request, and who a body says it is from."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from promptguard.service.auth import Principal, Scope

PRINCIPAL = "promptguard.principal"


def principal_of(request: HTTPConnection) -> Principal:
    """Return the caller whom the gate has let in."""
    principal = request.scope.get(PRINCIPAL)
    assert isinstance(principal, Principal), "the gate stands before every route"
    return principal


def permitted(request: HTTPConnection, scope: Scope) -> Principal:
    """Return the caller if they have the scope, else raise a 403 Fault."""
    principal = principal_of(request)
    principal.require(scope)
    return principal


def end_user_of(body: Mapping[str, object]) -> str:
    """Return OpenAI's `user` field: whose conversation it is, not which."""
    user = body.get("user")
    return user if isinstance(user, str) else ""
