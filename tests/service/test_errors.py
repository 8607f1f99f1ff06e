"""Errors go over the wire with the status that fits, and never with what was sent."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from promptguard.errors import (
    BudgetError,
    CircuitOpen,
    ConfigError,
    DataError,
    EvaluationError,
    InputError,
    JudgeReplyError,
    ModelError,
    PromptGuardError,
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    SessionNotFound,
    StoreError,
    VersionConflict,
)
from promptguard.service.errors import (
    ApiError,
    api_error_of,
    error_body,
    error_response,
    error_responses,
    invalid_fields,
)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InputError("x"), 400, "invalid_input"),
        (SessionNotFound("x"), 404, "session_not_found"),
        (ProviderTimeout("x"), 504, "upstream_timeout"),
        (ProviderRejected("x", status=418), 502, "upstream_error"),
        (CircuitOpen("x"), 502, "upstream_error"),
        (ProviderError("x"), 502, "upstream_error"),
        (VersionConflict("x"), 503, "store_unavailable"),
        (StoreError("x"), 503, "store_unavailable"),
        (JudgeReplyError("x"), 503, "not_judged"),
        (BudgetError("x"), 503, "not_judged"),
        (EvaluationError("x"), 503, "not_judged"),
        (ModelError("x"), 503, "not_judged"),
        (ConfigError("x"), 503, "not_configured"),
        (DataError("x"), 503, "unavailable"),
        (PromptGuardError("x"), 503, "unavailable"),
    ],
)
def test_each_of_our_errors_has_its_status(error: PromptGuardError, status: int, code: str) -> None:
    """A subclass before its parent; what cannot be judged is never a success."""
    found = api_error_of(error)
    assert (found.status_code, found.code) == (status, code)


def test_where_a_store_lies_is_not_told_to_callers() -> None:
    """Its file or host is for the log; what its outcomes say is for the caller."""
    told = api_error_of(StoreError("Cannot open /srv/secret.db"))
    assert "secret" not in str(told.detail)
    assert api_error_of(SessionNotFound("There is no such session.")).detail.endswith("session.")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (499, "invalid_request_error"),
        (500, "api_error"),
        (504, "api_error"),
    ],
)
def test_the_kind_is_the_one_that_clients_know(status: int, kind: str) -> None:
    """OpenAI's names; what is not listed goes by whose fault it is."""
    assert error_body(status, "m") == {
        "error": {"message": "m", "type": kind, "param": None, "code": None}
    }


@pytest.mark.parametrize(
    ("faults", "param"),
    [
        ([{"type": "missing", "loc": ("body", "model"), "msg": "Field required"}], "model"),
        ([{"type": "x", "loc": ("body", "messages", 0, "role"), "msg": "bad"}], "messages.0.role"),
        ([{"type": "x", "loc": ("query", "limit"), "msg": "bad"}], "limit"),
        ([{"type": "x", "loc": ("header", "body"), "msg": "bad"}], "body"),
        ([{"type": "x", "loc": ("body",), "msg": "bad"}], "body"),
        ([{"type": "x", "loc": (), "msg": "bad"}], "body"),
        ([{"type": "json_invalid", "loc": ("body", 17), "msg": "quoted text"}], "body"),
        (
            [
                {"type": "x", "loc": ("body", "first"), "msg": "bad"},
                {"type": "x", "loc": ("body", "second"), "msg": "bad"},
            ],
            "first",
        ),
    ],
)
def test_the_first_wrong_field_is_named(faults: list[dict[str, Any]], param: str) -> None:
    """By its path in what was sent; unreadable JSON is a fault of the whole body."""
    found = invalid_fields(RequestValidationError(faults))
    assert (found.status_code, found.code, found.param) == (422, "invalid_field", param)
    assert str(found.detail).startswith(f"{param}: ")
    assert "quoted" not in str(found.detail)


def test_a_field_that_is_no_text_is_named_as_one() -> None:
    """A key may be half a character, which no answer can hold."""
    faults = [{"type": "extra_forbidden", "loc": ("body", "\ud800"), "msg": "Not permitted"}]
    response = error_response(RequestValidationError(faults))
    assert (response.status_code, json.loads(bytes(response.body))["error"]["param"]) == (
        422,
        "\ufffd",
    )


@pytest.mark.parametrize(
    ("error", "code", "param"),
    [
        (HTTPException(400), "invalid_json", "body"),
        (HTTPException(404), "not_found", None),
        (HTTPException(405), "method_not_allowed", None),
        (HTTPException(418), "http_error", None),
        (ApiError(404, "m", code="model_not_found", param="model"), "model_not_found", "model"),
        (ApiError(400, "m", code="blocked"), "blocked", None),
    ],
)
def test_errors_of_the_framework_have_our_form(
    error: HTTPException, code: str, param: str | None
) -> None:
    """Ours keep their own code, also where it has none for the field."""
    response = error_response(error)
    body = json.loads(bytes(response.body))["error"]
    assert (response.status_code, body["code"], body["param"]) == (error.status_code, code, param)


def test_headers_of_an_error_win_over_those_added_to_it() -> None:
    """A verdict's headers do not undo the error's own; the error itself is not changed."""
    error = ApiError(429, "m", code="c", param="p", headers={"retry-after": "9"})
    added = error.with_headers({"retry-after": "1", "x-promptguard-mode": "SAFE"})
    assert added.headers == {"retry-after": "9", "x-promptguard-mode": "SAFE"}
    assert error.headers == {"retry-after": "9"}
    assert (added.status_code, added.detail, added.code, added.param) == (429, "m", "c", "p")
    assert error_response(added).headers["retry-after"] == "9"


def test_an_error_survives_the_way_from_another_process() -> None:
    """Long requests are computed in one."""
    error = ApiError(413, "m", code="c", param="p", headers={"a": "b"})
    again = pickle.loads(pickle.dumps(error))
    assert vars(again) == vars(error)


def test_the_description_of_a_route_lists_each_status_once() -> None:
    """Those of every route, and its own."""
    shared, more = error_responses(), error_responses(502, 504)
    assert set(more) - set(shared) == {502, 504}
    assert all(each["description"] for each in more.values())
    with pytest.raises(KeyError):
        error_responses(299)
