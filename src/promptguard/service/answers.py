"""The guard's own answers in OpenAI's shapes: refusals, ends of streams, verdict headers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from promptguard.controller import TurnResult
from promptguard.service.faults import Fault, error_body

DONE = b"data: [DONE]\n\n"
CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What surrounds a completion: the upstream's own where there is one."""

    model: str
    created: int
    id: str = field(default_factory=lambda: f"chatcmpl-pg{secrets.token_hex(12)}")

    def fields(self, kind: str) -> dict[str, object]:
        """Return the fields every completion and every chunk begins with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def verdict_headers(result: TurnResult) -> dict[str, str]:
    """Return the headers that every reply to a judged turn carries."""
    state = result.state
    headers = {
        "x-promptguard-mode": state.mode.name,
        "x-promptguard-risk": f"{state.accumulated_risk:.4f}",
        "x-promptguard-session": state.session_id,
        "x-promptguard-action": result.action.value,
    }
    if result.fault:
        headers["x-promptguard-judged"] = "false"
    return headers


def refusal(envelope: Envelope, text: str) -> dict[str, object]:
    """Return a completion that refuses, with the finish reason clients know for it."""
    return {
        **envelope.fields("chat.completion"),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": CONTENT_FILTER,
            }
        ],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def refusal_events(envelope: Envelope, text: str, *, begins: bool) -> Iterator[bytes]:
    """Yield the events that end a stream with a refusal; `begins` where nothing was sent yet."""
    fields = envelope.fields("chat.completion.chunk")
    role = {"role": "assistant"} if begins else {}
    deltas: tuple[tuple[Mapping[str, object], str | None], ...] = (
        ({**role, "content": text}, None),
        ({}, CONTENT_FILTER),
    )
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        yield event(json.dumps({**fields, "choices": [choice]}))
    yield DONE


def error_events(fault: Fault) -> Iterator[bytes]:
    """Yield the events that end a stream with an error, once its status can no longer change."""
    body = error_body(fault.status_code, str(fault.detail), code=fault.code)
    yield event(json.dumps(body))
    yield DONE


def event(data: str) -> bytes:
    """Return one server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"{lines}\n".encode("utf-8", "replace")


def blocked_fault(result: TurnResult, text: str) -> Fault:
    """Return the error for a blocked turn where blocks are errors."""
    return Fault(400, text, code=CONTENT_FILTER, param="messages", headers=verdict_headers(result))
