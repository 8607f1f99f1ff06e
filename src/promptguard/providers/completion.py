"""Reading chat completions: the whole answer, or the pieces of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import httpx
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from promptguard.conversation import text_of
from promptguard.errors import InputError
from promptguard.providers.endpoint import Attempt
from promptguard.providers.faults import garbled, rejected
from promptguard.providers.pricing import Price
from promptguard.providers.registry import ProviderRow
from promptguard.usage import Usage

_BAD_GATEWAY = 502
# Further numbers are no counts, and a sum with them is none either.
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Cost = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Message(BaseModel):
    content: str | list[object] | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    cost: _Cost | None = None


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
        """The text, or that of a refusal; reasoning is not part of it."""
        message = (self.choices[0].message or self.choices[0].delta) if self.choices else None
        return "" if message is None else text_of(message.content) or message.refusal or ""

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, None where it has not yet."""
        return self.choices[0].finish_reason if self.choices else None

    @property
    def error_status(self) -> int | None:
        """The status of an error inside the answer, None where there is none.

        Endpoints that fail after they sent status 200 put the error into the body.
        """
        if self.error is None and self.finish_reason != "error":
            return None
        code = self.error.get("code") if isinstance(self.error, Mapping) else None
        # OpenRouter puts the HTTP status into `code`; others put a name there.
        return code if isinstance(code, int) and 400 <= code <= 599 else _BAD_GATEWAY

    def usage_at(self, price: Price | None) -> Usage:
        """Return what the call cost: the endpoint's own figure, else tokens by price.

        Without either the call is unpriced; so is an answer that does not count its tokens,
        unless the price is 0.
        """
        tokens = self.usage or _Tokens()
        read, written = tokens.prompt_tokens or 0, tokens.completion_tokens or 0
        cost = tokens.cost
        if cost is None and price is not None and (read or written or price.is_free):
            cost = price.cost_usd(read, written)
        return Usage(
            calls=1,
            input_tokens=read,
            output_tokens=written,
            cost_usd=cost or 0.0,
            unpriced_calls=int(cost is None),
        )


def reply_of(raw: str | bytes, provider: ProviderRow) -> Reply:
    """Read one JSON answer; an error in it, or something else than an answer, is raised."""
    reply = _parsed(raw)
    # Whether the parts of a message hold text shows only when they are read.
    try:
        is_readable = reply is not None and isinstance(reply.text, str)
    except InputError:
        is_readable = False
    if reply is None or not is_readable:
        raise garbled(provider)
    if (status := reply.error_status) is not None:
        raise rejected(provider, status)
    return reply


def attempt_of(response: httpx.Response, price: Price | None) -> Attempt:
    """Return the status of a whole answer, one inside the body included, and its cost.

    An answer that cannot be used has its cost all the same. An error without token counts
    costs nothing: endpoints bill for answers.
    """
    reply = _parsed(response.content)
    status = response.status_code
    if response.is_success and reply is not None:
        status = reply.error_status or status
    is_answer = 200 <= status < 300
    if reply is not None and (is_answer or reply.usage is not None):
        return Attempt(status=status, usage=reply.usage_at(price))
    is_priced = not is_answer or (price is not None and price.is_free)
    return Attempt(status=status, usage=Usage(calls=1, unpriced_calls=int(not is_priced)))


def _parsed(raw: str | bytes) -> Reply | None:
    try:
        return Reply.model_validate_json(raw)
    except ValidationError:
        return None
