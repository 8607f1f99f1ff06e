"""Reading chat completions: the whole answer, or the pieces of a stream."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, field_validator

from promptguard.conversation import text_of
from promptguard.errors import InputError, ProviderError
from promptguard.protocols import Usage
from promptguard.providers.faults import garbled, rejected
from promptguard.providers.names import ProviderRow
from promptguard.providers.pricing import Price


class _Said(BaseModel):
    content: str | list[object] | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None


class Reply(BaseModel):
    """An answer, or one piece of it; what we do not use is ignored."""

    choices: list[_Choice] = []
    usage: _Tokens | None = None
    model: str | None = None
    error: object | None = None

    @field_validator("usage", mode="wrap")
    @classmethod
    def _usage_or_none(cls, value: object, read: ValidatorFunctionWrapHandler) -> _Tokens | None:
        """An answer is not lost over an unreadable count."""
        try:
            tokens: _Tokens | None = read(value)
        except ValidationError:
            return None
        return tokens

    @property
    def text(self) -> str:
        """What was said, or the words of a refusal; reasoning is not part of it."""
        said = (self.choices[0].message or self.choices[0].delta) if self.choices else None
        return "" if said is None else text_of(said.content) or said.refusal or ""

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, None where it has not yet."""
        return self.choices[0].finish_reason if self.choices else None

    def usage_at(self, price: Price | None) -> Usage:
        """Return what the call cost: the endpoint's own figure, else by price, else 0."""
        tokens = self.usage or _Tokens()
        read, written = max(0, tokens.prompt_tokens or 0), max(0, tokens.completion_tokens or 0)
        cost = tokens.cost
        if cost is None:
            cost = 0.0 if price is None else price.cost_usd(read, written)
        return Usage(calls=1, input_tokens=read, output_tokens=written, cost_usd=cost)


def reply_of(raw: str | bytes, provider: ProviderRow) -> Reply:
    """Read one JSON answer; an error in it, or something else than an answer, is raised."""
    try:
        reply = Reply.model_validate_json(raw)
        reply.text  # noqa: B018 - content of an unknown form shows itself here
    except (ValidationError, InputError):
        raise garbled(provider) from None
    if reply.error is not None or reply.finish_reason == "error":
        raise _told_error(reply.error, provider)
    return reply


def _told_error(error: object, provider: ProviderRow) -> ProviderError:
    """Endpoints that fail after they sent status 200 put the error into the body."""
    code = error.get("code") if isinstance(error, Mapping) else None
    return rejected(provider, code if isinstance(code, int) and 400 <= code <= 599 else 502)
