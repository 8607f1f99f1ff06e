"""A language model behind any OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import httpx

from promptguard.conversation import Message, Role
from promptguard.errors import ProviderError
from promptguard.protocols import Completion
from promptguard.providers.completion import Reply, attempt_of, reply_of
from promptguard.providers.endpoint import Attempt, Endpoint, earlier_usage
from promptguard.providers.faults import check, cut_off, garbled
from promptguard.providers.pricing import Price
from promptguard.providers.sse import SseParser
from promptguard.usage import Usage

_PATH = "/chat/completions"
_DONE = "[DONE]"
# Endpoints that do not know a field answer with one of these.
_REFUSALS = (400, 422)
_AS_SENT = {"accept-encoding": "identity"}  # compression would hold pieces back


class OpenAICompatibleProvider:
    """A Provider over HTTP.

    `options` are further fields of every request (such as a temperature). Fields that an
    endpoint refuses and an answer can do without (`response_format`, `stream_options`) are left
    out from then on. `usage` adds up all calls, streams, failures and retries included.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        name: str | None = None,
        price: Price | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._name = name or f"{endpoint.provider.name}/{model}"
        self._price = price
        self._options = dict(options or {})
        self._refused: set[str] = set()
        self._reports_cost = endpoint.provider.reports_cost
        self._is_closed = False
        self.usage = Usage()

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        return self._name

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, object] | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        """Return the whole answer; `schema` asks for JSON of that form where the endpoint can."""
        body = self._body(messages)
        if max_tokens is not None:
            body[self._endpoint.provider.max_tokens_field] = max_tokens
        if schema is not None and "response_format" not in self._refused:
            body["response_format"] = _json_format(schema)
        spent = _Spent()
        try:
            response = await self._post(body, spent)
            reply = reply_of(response.content, self._endpoint.provider)
            if not reply.choices:
                raise garbled(self._endpoint.provider)
        except ProviderError as error:
            # The endpoint counts the attempts that it raises for; the rest is known here.
            error.usage += spent.usage
            self.usage += error.usage
            raise
        self.usage += spent.usage
        return Completion(
            text=reply.text,
            model=reply.model or self._model,
            finish_reason=reply.finish_reason or "stop",
            usage=spent.usage,
        )

    @property
    def is_price_known(self) -> bool:
        """Whether the cost of a call will be known, by the price table or from the endpoint."""
        return self._price is not None or self._reports_cost

    @property
    def is_free(self) -> bool:
        """Whether a call costs nothing."""
        return self._price is not None and self._price.is_free

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Yield the answer in pieces as they come.

        A stream that ends before the model has finished raises ProviderError.
        """
        body = {**self._body(messages), "stream": True}
        if "stream_options" not in self._refused:
            body["stream_options"] = {"include_usage": True}
        try:
            async with (
                self._posted_stream(body) as response,
                # Closed at once when the reader stops, so that what was used is counted before the
                # caller goes on.
                aclosing(self._replies(response)) as replies,
            ):
                async for reply in replies:
                    if reply.text:
                        yield reply.text
        except ProviderError as error:
            self.usage += error.usage
            raise

    async def close(self) -> None:
        """Release connections."""
        if not self._is_closed:
            self._is_closed = True
            await self._endpoint.close()

    async def _post(self, body: dict[str, object], spent: _Spent) -> httpx.Response:
        response = await self._send(body, spent)
        if response.status_code in _REFUSALS and "response_format" in body:
            response = await self._send(_without(body, "response_format"), spent)
            self._remember("response_format", response)
        await check(response, self._endpoint.provider)
        return response

    async def _send(self, body: dict[str, object], spent: _Spent) -> httpx.Response:
        response = await self._endpoint.send("POST", _PATH, json=body, measure=self._measure)
        attempt = self._measure(response)
        if attempt.usage.unpriced_calls and response.is_success:
            # An answer without a cost shows that the endpoint does not report any after all.
            self._reports_cost = False
        spent.usage += earlier_usage(response) + attempt.usage
        return response

    def _measure(self, response: httpx.Response) -> Attempt:
        return attempt_of(response, self._price)

    @asynccontextmanager
    async def _posted_stream(self, body: dict[str, object]) -> AsyncIterator[httpx.Response]:
        is_slim = False
        while True:
            async with self._endpoint.stream(
                "POST", _PATH, json=body, headers=_AS_SENT
            ) as response:
                if is_slim:
                    self._remember("stream_options", response)
                spent = earlier_usage(response) + Usage(calls=1)
                if response.status_code not in _REFUSALS or "stream_options" not in body:
                    try:
                        await check(response, self._endpoint.provider)
                    except ProviderError as error:
                        error.usage = spent
                        raise
                    yield response
                    return
                self.usage += spent
            body, is_slim = _without(body, "stream_options"), True

    async def _replies(self, response: httpx.Response) -> AsyncGenerator[Reply, None]:
        is_finished = False
        # Of unknown cost until the last piece tells: a stream may break off before it.
        usage = Usage(calls=1, unpriced_calls=int(self._price is None or not self._price.is_free))
        try:
            async for event in _events(response):
                if event.strip() == _DONE:
                    is_finished = True
                    break
                reply = reply_of(event, self._endpoint.provider)
                is_finished = is_finished or reply.finish_reason is not None
                if reply.usage is not None:
                    usage = reply.usage_at(self._price)
                yield reply
        except httpx.TransportError:
            # After the reason to stop a lost connection costs only the token count.
            if not is_finished:
                raise
        finally:
            self.usage += earlier_usage(response) + usage
        if not is_finished:
            raise cut_off(self._endpoint.provider)

    def _body(self, messages: Sequence[Message]) -> dict[str, object]:
        sent = [_as_json(message) for message in messages]
        # Options come first: they may not replace the model or the messages.
        return {**self._options, "model": self._model, "messages": sent}

    def _remember(self, field: str, response: httpx.Response) -> None:
        # The field is blamed only where the request succeeds without it.
        if response.is_success:
            self._refused.add(field)


@dataclass(slots=True)
class _Spent:
    """What one question has cost so far."""

    usage: Usage = field(default_factory=Usage)


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    parser = SseParser()
    async for piece in response.aiter_bytes():
        for event in parser.feed(piece):
            yield event
    for event in parser.finish():
        yield event


def _as_json(message: Message) -> dict[str, str]:
    # Endpoints take the role `tool` only as the answer to a call that they know of.
    if message.role is Role.TOOL:
        return {"role": Role.USER.value, "content": f"[tool result]\n{message.content}"}
    return {"role": message.role.value, "content": message.content}


def _json_format(schema: Mapping[str, object]) -> dict[str, object]:
    named = {"name": "answer", "strict": True, "schema": dict(schema)}
    return {"type": "json_schema", "json_schema": named}


def _without(body: Mapping[str, object], field: str) -> dict[str, object]:
    return {name: value for name, value in body.items() if name != field}
