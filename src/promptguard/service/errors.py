"""Errors as the HTTP API returns them: OpenAI's error body with the status that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from promptguard.conversation import without_lone_surrogates
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
# Code and parameter for errors that the framework raises without our code: bodies it cannot
# decode, unknown paths and methods.
_FRAMEWORK_ERRORS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_json", "body"),
    404: ("not_found", None),
    405: ("method_not_allowed", None),
}
# The first matching row wins, so subclasses come before their parents.
_STATUS_BY_ERROR: tuple[tuple[type[PromptGuardError], int, str], ...] = (
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
_DESCRIPTIONS = {
    400: "The request cannot be judged, or the turn was blocked (block_style: error)",
    401: "No valid API key",
    403: "The key lacks the scope, or the caller is not local",
    404: "There is no such thing",
    408: "The body came too slowly",
    413: "Body, message or number of messages too large",
    422: "A field has the wrong form, or the session is full",
    429: "Rate limit of the key reached, or too many of its requests under way",
    502: "The upstream failed",
    503: "The service is full, or the turn could not be judged or recorded: it was not passed on",
    504: "The upstream did not answer in time",
}
_TEXT, _TEXT_OR_NULL = {"type": "string"}, {"type": ["string", "null"]}
_FIELDS = {"message": _TEXT, "type": _TEXT, "param": _TEXT_OR_NULL, "code": _TEXT_OR_NULL}
_ERROR = {"type": "object", "required": list(_FIELDS), "properties": _FIELDS}
_ERROR_SCHEMA = {"type": "object", "required": ["error"], "properties": {"error": _ERROR}}


class ApiError(HTTPException):
    """An error response; `code` names the kind, `param` the offending field."""

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

    def __reduce__(self) -> tuple[Callable[..., ApiError], tuple[object, ...]]:
        """Return how to make the error again in another process."""
        # Exceptions are pickled by their positional arguments, which would lose code and field.
        again = partial(ApiError, code=self.code, param=self.param, headers=self.headers)
        return again, (self.status_code, str(self.detail))

    def with_headers(self, headers: Mapping[str, str]) -> ApiError:
        """Return the same error with `headers` added; its own headers win."""
        again, given = self.__reduce__()
        return again(*given, headers={**headers, **(self.headers or {})})


def error_body(
    status: int, message: str, *, code: str | None = None, param: str | None = None
) -> dict[str, object]:
    """Return an error in the shape OpenAI's clients read."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def api_error_of(error: PromptGuardError) -> ApiError:
    """Return the response for one of our own errors; their messages never hold user text.

    What a store says names its file or host, which is for the log and not for callers.
    """
    # Subclasses are outcomes, such as an unknown session, whose words are for the caller.
    if type(error) is StoreError:
        return ApiError(503, "The session store failed; try again.", code="store_unavailable")
    for kind, status, code in _STATUS_BY_ERROR:
        if isinstance(error, kind):
            return ApiError(status, str(error), code=code)
    raise AssertionError("the last row matches every error")


def invalid_fields(error: RequestValidationError) -> ApiError:
    """Return the response for a body or query of the wrong form, naming the first wrong field."""
    first = error.errors()[0]
    # A client's key may be broken Unicode, which no answer can hold.
    location = [without_lone_surrogates(str(part)) for part in first["loc"]]
    # Clients know their own fields, not the framework's name for where they stood.
    if location and location[0] in ("body", "query", "path", "header"):
        del location[0]
    param, message = ".".join(location) or "body", str(first["msg"])
    if first["type"] == "json_invalid":
        param, message = "body", "is not valid JSON"
    elif not location:
        # Without the content type the framework reads no JSON and finds a text in its place.
        message = "must be a JSON object, sent with content-type: application/json"
    return ApiError(422, f"{param}: {message}.", code="invalid_field", param=param)


def error_response(error: Exception) -> JSONResponse:
    """Return an error of ours or of the framework as it goes over the wire."""
    if isinstance(error, PromptGuardError):
        error = api_error_of(error)
    elif isinstance(error, RequestValidationError):
        error = invalid_fields(error)
    assert isinstance(error, HTTPException)
    code, param = _FRAMEWORK_ERRORS.get(error.status_code, ("http_error", None))
    if isinstance(error, ApiError):
        code, param = error.code, error.param
    body = error_body(error.status_code, str(error.detail), code=code, param=param)
    return JSONResponse(body, status_code=error.status_code, headers=dict(error.headers or {}))


def error_responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return the OpenAPI descriptions of the errors a route may return.

    `statuses` are those beyond the ones that every route shares.
    """
    shared = (400, 401, 403, 404, 408, 413, 422, 429, 503)
    return {
        status: {
            "description": _DESCRIPTIONS[status],
            "content": {"application/json": {"schema": _ERROR_SCHEMA}},
        }
        for status in (*shared, *statuses)
    }
