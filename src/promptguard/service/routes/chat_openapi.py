"""How the gateway's routes are described in `/openapi.json`."""

from __future__ import annotations

_ANY_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_TEXT = {"type": "string"}
_CONTENT = [_TEXT, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]
_ROLES = ["system", "developer", "user", "assistant", "tool"]
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {**_TEXT, "enum": _ROLES}, "content": {"anyOf": _CONTENT}},
}


def described(
    summary: str,
    field: str,
    *,
    form: dict[str, object] | None = None,
    refusal: str = "",
    further: dict[str, object] | None = None,
) -> dict[str, object]:
    """Return the description of a route whose request has `model` and `field` of the `form`."""
    properties = {"model": {**_TEXT, "minLength": 1}, field: form or {}}
    schema = {
        "type": "object",
        "required": ["model", field],
        "properties": {**properties, "stream": {"type": "boolean"}, **(further or {})},
    }
    content = {**_ANY_OBJECT, "text/event-stream": {}}
    answer = {"description": f"The model's answer, or a refusal{refusal}", "content": content}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": answer},
    }


CHAT: dict[str, object] = {
    **described(
        "Chat completion, guarded",
        "messages",
        form={"type": "array", "minItems": 1, "items": _MESSAGE},
        refusal=" with finish_reason content_filter",
        further={"user": _TEXT, "metadata": {"type": "object"}},
    ),
    "description": "OpenAI's request and answer; fields not named here are passed through.",
}
MODELS: dict[str, object] = {
    "summary": "The upstream's models",
    "responses": {"200": {"description": "OpenAI's list of models", "content": _ANY_OBJECT}},
}
