"""The parts of the OpenAPI description that FastAPI cannot read off our code."""

from __future__ import annotations

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_ERRORS = {
    400: "The request cannot be judged, or the turn was blocked (block_style: error)",
    401: "No valid API key",
    403: "The key lacks the scope, or the caller is not local",
    404: "There is no such thing",
    408: "The body came too slowly",
    413: "Body, message or number of messages too large",
    422: "A field has the wrong form, or the session is full",
    429: "Rate limit of the key reached",
    502: "The upstream failed",
    503: "The turn could not be judged or recorded, so it was not passed on",
    504: "The upstream did not answer in time",
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return the descriptions of the errors a route may answer with."""
    every = (400, 401, 403, 404, 408, 413, 422, 429, 503, *statuses)
    return {
        status: {
            "description": _ERRORS[status],
            "content": {"application/json": {"schema": _ERROR_SCHEMA}},
        }
        for status in every
    }


_ANY_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "object"}},
                {"type": "null"},
            ]
        },
    },
}

CHAT_OPENAPI: dict[str, object] = {
    "summary": "Chat completion, guarded",
    "description": "OpenAI's request and answer; fields not named here are passed through.",
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string", "minLength": 1},
                        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
                        "stream": {"type": "boolean"},
                        "user": {"type": "string"},
                        "metadata": {"type": "object"},
                    },
                }
            }
        },
    },
    "responses": {
        "200": {
            "description": "The model's answer, or a refusal with finish_reason content_filter",
            "content": {**_ANY_OBJECT, "text/event-stream": {}},
        },
    },
}
MODELS_OPENAPI: dict[str, object] = {
    "summary": "The upstream's models",
    "responses": {"200": {"description": "OpenAI's list of models", "content": _ANY_OBJECT}},
}
