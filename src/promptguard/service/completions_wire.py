"""OpenAI's older completions format: one prompt, no roles."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from promptguard.conversation import Role
from promptguard.service.body import (
    Limits,
    Reading,
    checked_model,
    invalid,
    read_json,
)
from promptguard.service.openai_wire import read_fields
from promptguard.service.wire import (
    CONTENT_FILTER,
    DONE,
    ChoiceText,
    ChunkWire,
    GuardedRequest,
    Refusal,
    sse_event,
    string,
)

_KNOWN = frozenset({"prompt", "model", "stream"})
NOT_READ = frozenset({"prompt", "model", "stream", "stream_options", "user", "stop"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsRequest(GuardedRequest):
    """A request of the completions API; a prompt of token numbers is not judged."""

    def noticed(self, body: Mapping[str, object], notice: str) -> Mapping[str, object]:
        """Return the body as it is: a prompt without roles has no place for a notice."""
        del notice
        return body


class CompletionsWire(ChunkWire):
    """`POST /v1/completions`."""

    path = "/completions"
    operation = "text_completion"

    def new_id(self) -> str:
        """Return an id for a completion of our own."""
        return f"cmpl-pg{secrets.token_hex(12)}"

    def read_request(self, raw: bytes, limits: Limits) -> CompletionsRequest:
        """Read a request; several prompts are one turn."""
        body = read_json(raw, _KNOWN)
        prompt = body.get("prompt", "")
        prompts = prompt if isinstance(prompt, list) else [prompt]
        reading = Reading(limits=limits)
        texts = [item for item in prompts if isinstance(item, str)]
        if len(texts) < len(prompts):
            if not all(isinstance(item, (int, list, str)) for item in prompts):
                raise invalid("prompt", "must be text or tokens")
            reading.unjudged.append("prompt")
        reading.message(Role.USER, "\n".join(texts), ("prompt",))
        read_fields(reading, body, NOT_READ)
        return CompletionsRequest.of(
            raw, body, reading, model=checked_model(body), end_user=body.get("user")
        )

    def choice_of(self, choice: Mapping[str, object], at: int) -> ChoiceText:
        """Read one choice."""
        index, text = choice.get("index"), string(choice.get("text"))
        return ChoiceText(index=index if isinstance(index, int) else at, text=text, shown=text)

    def refusal(self, request: GuardedRequest, refusal: Refusal) -> Mapping[str, object]:
        """Return a completion that refuses."""
        del request
        # Clients append this to what they have shown, so it begins a paragraph of its own.
        text = f"\n\n{refusal.text}" if refusal.sent else refusal.text
        return {
            "id": refusal.id,
            "object": "text_completion",
            "created": refusal.created,
            "model": refusal.model,
            "choices": [
                {"index": 0, "text": text, "logprobs": None, "finish_reason": CONTENT_FILTER}
            ],
        }

    def refusal_events(self, request: GuardedRequest, refusal: Refusal) -> Iterator[bytes]:
        """Yield the refusal as the last chunk, and the end mark."""
        yield sse_event(json.dumps(self.refusal(request, refusal)))
        yield DONE
