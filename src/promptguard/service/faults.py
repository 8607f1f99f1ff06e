"""What goes wrong on the wire: OpenAI-shaped errors with the status that fits."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from promptguard.errors import (
    ConfigError,
    EvaluationError,
    InputError,
    ModelError,
    PromptGuardError,
    ProviderError,
    ProviderTimeout,
    SessionNotFound,
    StoreError,
)

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
# What the framework itself raises: bodies it cannot decode, paths and methods it does not know.
_FRAMEWORKS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_json", "body"),
    404: ("not_found", None),
    405: ("method_not_allowed", None),
}
_STATUS_OF: tuple[tuple[type[PromptGuardError], int, str], ...] = (
    (InputError, 400, "invalid_input"),
    (SessionNotFound, 404, "session_not_found"),
    (ProviderTimeout, 504, "upstream_timeout"),
    (ProviderError, 502, "upstream_error"),
    (StoreError, 503, "store_unavailable"),
    (EvaluationError, 503, "not_judged"),
    (ModelError, 503, "not_judged"),
    (ConfigError, 503, "not_configured"),
    (PromptGuardError, 503, "unavailable"),
)


class Fault(HTTPException):
    """An answer that is an error; `param` names the field at fault, `code` the kind."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code = code
        self.param = param


def error_body(
    status: int, message: str, *, code: str | None = None, param: str | None = None
) -> dict[str, object]:
    """Return an error in the shape OpenAI's clients read."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def fault_of(error: PromptGuardError) -> Fault:
    """Return the answer for one of our own errors; their messages never hold user text."""
    for kind, status, code in _STATUS_OF:
        if isinstance(error, kind):
            return Fault(status, str(error), code=code)
    raise AssertionError("the last row takes every error")


def invalid_fields(error: RequestValidationError) -> Fault:
    """Return the answer for a body or query of the wrong form: which field, and what is wrong."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    is_unreadable = first["type"] == "json_invalid"
    inside = place[1:] if place and place[0] in ("body", "query", "path", "header") else place
    param = "body" if is_unreadable or not inside else ".".join(inside)
    message = "is not valid JSON" if is_unreadable else str(first["msg"])
    return Fault(422, f"{param}: {message}.", code="invalid_field", param=param)


def error_response(fault: HTTPException) -> JSONResponse:
    """Return a fault as it goes over the wire."""
    code, param = _FRAMEWORKS.get(fault.status_code, ("http_error", None))
    if isinstance(fault, Fault):
        code, param = fault.code, fault.param
    body = error_body(fault.status_code, str(fault.detail), code=code, param=param)
    return JSONResponse(body, status_code=fault.status_code, headers=dict(fault.headers or {}))
