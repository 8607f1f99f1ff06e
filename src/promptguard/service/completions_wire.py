"""OpenAI's older completions format: prompts without roles, each with answers of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from promptguard.conversation import Role
from promptguard.service.body import Reading, check_count, invalid
from promptguard.service.openai_wire import asked_choices
from promptguard.service.wire import (
    CONTENT_FILTER,
    DONE,
    ChunkWire,
    Refusal,
    sse_event,
    string,
)

# A small request can ask for more choices than anybody generates.
_MAX_REFUSED = 2048


class CompletionsWire(ChunkWire):
    """`POST /v1/completions`; a prompt without roles has no place for a notice."""

    path = "/completions"
    field = "prompt"
    known = frozenset({"prompt", "model", "stream"})
    not_read = known | {"stream_options", "user", "stop"}
    mark = "cmpl-pg"

    def read_words(self, reading: Reading, body: Mapping[str, object]) -> None:
        """Read the prompts: one turn, passed or refused together; tokens are not judged."""
        prompts = _prompts(body)
        check_count(prompts, "prompt", reading.limits)
        texts = [item for item in prompts if isinstance(item, str)]
        if len(texts) < len(prompts):
            if not all(isinstance(item, str) or _is_tokens(item) for item in prompts):
                raise invalid("prompt", "must be text or tokens")
            reading.unjudged.append("prompt")
        reading.message(Role.USER, "\n".join(texts), ("prompt",))

    def texts_in(self, choice: Mapping[str, object]) -> tuple[str, str]:
        """Read one choice."""
        text = string(choice.get("text"))
        return text, text

    def refusal(self, refusal: Refusal) -> Mapping[str, object]:
        """Return a completion that refuses, with a choice for each that was asked for."""
        return {**self.envelope(refusal, "text_completion"), "choices": list(_choices(refusal))}

    def refusal_events(self, refusal: Refusal) -> Iterator[bytes]:
        """Yield the refusal as the last chunk of each choice, and the end mark."""
        fields = self.envelope(refusal, "text_completion")
        for choice in _choices(refusal):
            yield sse_event(json.dumps({**fields, "choices": [choice]}))
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


def _choices(refusal: Refusal) -> Iterator[dict[str, object]]:
    body = refusal.asked.body
    for index in range(min(len(_prompts(body)) * asked_choices(body), _MAX_REFUSED)):
        said = {"index": index, "text": refusal.appended, "logprobs": None}
        yield {**said, "finish_reason": CONTENT_FILTER}
