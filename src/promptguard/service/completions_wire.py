"""OpenAI's older completions format: prompts without roles, each with answers of its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from promptguard.conversation import Role
from promptguard.service.body import (
    Limits,
    Reading,
    check_count,
    checked_model,
    invalid,
    read_json,
)
from promptguard.service.openai_wire import asked_choices, read_fields
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
# A small request can ask for more choices than anybody generates.
_MAX_REFUSED = 2048
NOT_READ = frozenset({"prompt", "model", "stream", "stream_options", "user", "stop"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsRequest(GuardedRequest):
    """A request of the completions API; a prompt of token numbers is not judged."""

    @property
    def choice_count(self) -> int:
        """How many answers are asked for: `n` to each prompt."""
        return min(len(_prompts(self.body)) * asked_choices(self.body), _MAX_REFUSED)

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
        """Read a request; its prompts are one turn, passed or refused together."""
        body = read_json(raw, _KNOWN)
        prompts = _prompts(body)
        check_count(prompts, "prompt", limits)
        reading = Reading(limits=limits)
        texts = [item for item in prompts if isinstance(item, str)]
        if len(texts) < len(prompts):
            if not all(isinstance(item, str) or _is_tokens(item) for item in prompts):
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
        """Return a completion that refuses, with a choice for each that was asked for."""
        return {**_envelope(refusal), "choices": list(_choices(request, refusal))}

    def refusal_events(self, request: GuardedRequest, refusal: Refusal) -> Iterator[bytes]:
        """Yield the refusal as the last chunk of each choice, and the end mark."""
        for choice in _choices(request, refusal):
            yield sse_event(json.dumps({**_envelope(refusal), "choices": [choice]}))
        yield DONE


def _is_tokens(prompt: object) -> bool:
    # Some servers take words among the numbers, which would pass unread.
    return isinstance(prompt, list) and all(isinstance(item, int) for item in prompt)


def _prompts(body: Mapping[str, object]) -> Sequence[object]:
    """Return the prompts of a request; a list of numbers is one, as tokens."""
    prompt = body.get("prompt", "")
    if not isinstance(prompt, list) or _is_tokens(prompt):
        return [prompt]
    return prompt


def _envelope(refusal: Refusal) -> dict[str, object]:
    return {
        "id": refusal.id,
        "object": "text_completion",
        "created": refusal.created,
        "model": refusal.model,
    }


def _choices(request: GuardedRequest, refusal: Refusal) -> Iterator[dict[str, object]]:
    assert isinstance(request, CompletionsRequest)
    # Clients append this to what they have shown, so it begins a paragraph of its own.
    text = f"\n\n{refusal.text}" if refusal.sent else refusal.text
    for index in range(request.choice_count):
        yield {"index": index, "text": text, "logprobs": None, "finish_reason": CONTENT_FILTER}
