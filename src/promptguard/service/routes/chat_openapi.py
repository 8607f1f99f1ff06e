"""How the gateway's routes are described in `/openapi.json`."""

from __future__ import annotations

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

CHAT: dict[str, object] = {
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
MODELS: dict[str, object] = {
    "summary": "The upstream's models",
    "responses": {"200": {"description": "OpenAI's list of models", "content": _ANY_OBJECT}},
}


def described(summary: str, asked: str) -> dict[str, object]:
    """Return the description of a route whose request has `model` and the field `asked`."""
    schema = {
        "type": "object",
        "required": ["model", asked],
        "properties": {
            "model": {"type": "string", "minLength": 1},
            asked: {},
            "stream": {"type": "boolean"},
        },
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": {
                "description": "The model's answer, or a refusal",
                "content": {**_ANY_OBJECT, "text/event-stream": {}},
            }
        },
    }
