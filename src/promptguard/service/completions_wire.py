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
    check_keys,
    checked_flag,
    checked_model,
    invalid,
    read_json,
)
from promptguard.service.errors import ApiError
from promptguard.service.openai_wire import read_fields
from promptguard.service.wire import (
    CONTENT_FILTER,
    DONE,
    ChoiceText,
    Completion,
    GuardedRequest,
    Refusal,
    objects,
    openai_error,
    parsed,
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


class CompletionsWire:
    """`POST /v1/completions`."""

    path = "/completions"
    operation = "text_completion"

    def new_id(self) -> str:
        """Return an id for a completion of our own."""
        return f"cmpl-pg{secrets.token_hex(12)}"

    def read_request(self, raw: bytes, limits: Limits) -> CompletionsRequest:
        """Read a request; several prompts are one turn."""
        body = read_json(raw)
        check_keys(body, "body", _KNOWN)
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
        return CompletionsRequest(
            raw=raw,
            body=body,
            messages=tuple(reading.messages),
            contents=tuple(reading.contents),
            system="",
            unjudged=tuple(dict.fromkeys(reading.unjudged)),
            model=checked_model(body),
            is_stream=checked_flag(body, "stream"),
            end_user=string(body.get("user")),
        )

    def read_answer(self, raw: str | bytes) -> Completion | None:
        """Read one answer."""
        return self.read(raw)

    def event_reader(self) -> CompletionsWire:
        """Return the reader of chunks: they need no memory."""
        return self

    def read(self, data: str | bytes) -> Completion | None:
        """Read one answer or chunk."""
        body = parsed(data)
        if body is None:
            return None
        if body.get("error"):
            return Completion(is_error=True)
        if not isinstance(body.get("choices"), list):
            return None
        choices = objects(body.get("choices"))
        created = body.get("created")
        return Completion(
            choices=tuple(_choice(at, choice) for at, choice in enumerate(choices)),
            id=string(body.get("id")),
            model=string(body.get("model")),
            created=created if isinstance(created, int) else 0,
            is_last=any(choice.get("finish_reason") is not None for choice in choices),
        )

    def refusal(self, request: GuardedRequest, refusal: Refusal) -> Mapping[str, object]:
        """Return a completion that refuses."""
        del request
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

    def event(self, data: str) -> bytes:
        """Return one chunk as it came."""
        return sse_event(data)

    def end(self) -> bytes:
        """Return the end mark."""
        return DONE

    def error_body(self, error: ApiError) -> Mapping[str, object]:
        """Return an error in OpenAI's shape."""
        return openai_error(error)

    def error_events(self, error: ApiError) -> Iterator[bytes]:
        """Yield an error and the end mark."""
        yield sse_event(json.dumps(self.error_body(error)))
        yield DONE


def _choice(at: int, choice: Mapping[str, object]) -> ChoiceText:
    index, text = choice.get("index"), string(choice.get("text"))
    return ChoiceText(index=index if isinstance(index, int) else at, text=text, shown=text)
