"""A streamed answer: judged as it comes, held back, and always ended with a clean event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from promptguard.errors import ProviderError
from promptguard.providers import SseParser
from promptguard.service.errors import ApiError
from promptguard.service.intake import Admission
from promptguard.service.replies import HoldBack, ReplyJudge, ReplyRecorder
from promptguard.service.upstream import Upstream, ended_or_left
from promptguard.service.wire import AnswerPart, GuardedRequest, Refusal, Wire


@dataclass(slots=True, kw_only=True)
class StreamedReply:
    """One streamed answer. `opened` holds the upstream's response and closes it.

    `named` is called with the answer's id as soon as it is known.
    """

    wire: Wire
    admission: Admission
    recorder: ReplyRecorder
    upstream: Upstream
    response: httpx.Response
    opened: AsyncExitStack
    request: GuardedRequest
    holdback_chars: int
    named: Callable[[str], None]
    _is_settled: bool = field(default=False, init=False)
    _is_finished: bool = field(default=False, init=False)
    _has_begun: bool = field(default=False, init=False)
    _head: AnswerPart = field(default_factory=AnswerPart, init=False)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events for the client; the answer is recorded before the last of them."""
        is_enforced = self.admission.result.is_enforced
        # In detect mode nothing is cut, so nothing need be kept back either.
        hold = HoldBack(self.holdback_chars if is_enforced else 0)
        judge = self.recorder.judge_of(self.admission)
        try:
            try:
                async for data in self._event_data():
                    hold.take(data, self._read(data))
                    if is_enforced and hold.is_due and await self._grows_bad(judge, hold):
                        for piece in await self._cut(hold):
                            yield piece
                        return
                    for piece in self._released(hold.release()):
                        yield piece
                # A stream may end without its last word where the upstream broke off; that is no
                # answer.
                error = None if self._is_finished else self.upstream.cut_off()
            except (ApiError, ProviderError, httpx.HTTPError) as failure:
                error = failure if isinstance(failure, ApiError) else self.upstream.cut_off()
            # The end has not been judged yet, whether the stream is whole or broke off.
            try:
                is_bad = await self._grows_bad(judge, hold)
            except ApiError as failure:
                is_bad, error = False, failure
            for piece in await (self._cut(hold) if is_bad else self._ended(hold, error)):
                yield piece
        finally:
            await self._leave(hold)

    async def _grows_bad(self, judge: ReplyJudge, hold: HoldBack) -> bool:
        """Judge what has come; where that fails, none of it is passed on."""
        try:
            return await judge.grows_bad(hold.take_unjudged())
        except ApiError:
            hold.drop()
            raise

    async def _event_data(self) -> AsyncIterator[str]:
        """Yield the data of each event before `[DONE]`."""
        parser = SseParser()
        async for piece in self.response.aiter_bytes():
            for data in parser.feed(piece):
                if self._is_end(data):
                    return
                yield data
        for data in parser.finish():
            if not self._is_end(data):
                yield data

    def _is_end(self, data: str) -> bool:
        is_end = data.strip() == "[DONE]"
        # The mark says that the answer is whole, also where no reason to finish was given.
        self._is_finished = self._is_finished or is_end
        return is_end

    def _read(self, data: str) -> AnswerPart:
        completion = self.wire.read_event(data)
        if completion is None:
            raise self.upstream.garbled()
        if completion.is_error:
            raise self.upstream.cut_off()
        if completion.id and not self._head.id:
            self._head = completion
            self.named(completion.id)
        self._is_finished = self._is_finished or completion.is_last
        return completion

    def _released(self, chunks: list[str]) -> Iterator[bytes]:
        for data in chunks:
            self._has_begun = True
            yield self.wire.event(data)

    async def _ended(self, hold: HoldBack, error: ApiError | None) -> Iterable[bytes]:
        # What came before the upstream broke off is shown, so it is part of the transcript.
        if error is None or hold.text:
            # Before the last event goes out: the client's next request must find the answer stored.
            await self._settle(hold.text)
        # In this order: an error is numbered after what the client has got.
        pieces = [*self._released(hold.release(everything=True))]
        if error is not None:
            pieces.append(self.wire.error_event(error))
        return (*pieces, self.wire.end)

    async def _cut(self, hold: HoldBack) -> Iterable[bytes]:
        # The rest would be generated and paid for, and thrown away.
        await self.opened.aclose()
        refusal = self.recorder.refusal
        # The transcript holds what the client has, which is what it will resend.
        shown = f"{hold.sent}\n\n" if hold.sent else ""
        await self._settle(shown + refusal)
        written = Refusal(
            asked=self.request,
            text=refusal,
            id=self._head.id or self.wire.new_id(),
            model=self._head.model or self.request.model,
            created=self._head.created or int(time.time()),
            sent=hold.sent,
            begun=self._has_begun,
        )
        return self.wire.refusal_events(written)

    async def _settle(self, text: str) -> None:
        self._is_settled = True
        # The client may leave meanwhile, and with it this task.
        await asyncio.shield(
            self.recorder.background.spawn(self.recorder.record(self.admission, text))
        )

    async def _leave(self, hold: HoldBack) -> None:
        if not self._is_settled:
            self._is_settled = True
            # The client has left, and with it this task: what it has read is recorded beside it.
            if hold.sent:
                self.recorder.background.spawn(self.recorder.record(self.admission, hold.sent))
            else:
                # Nothing of the answer was seen, so the turn may be sent again as it was.
                self.recorder.intake.mark_unanswered(self.admission)
        await self.opened.aclose()


class EventStream(Response):
    """Sends events; ends the work behind them when the client leaves or stops reading."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], *, headers: Mapping[str, str], client_timeout_s: float
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", **headers})
        # Starlette sets the length of an empty body, and the length of a stream is not known.
        del self.headers["content-length"]
        self._events = events
        self._client_timeout_s = client_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        del scope
        pump = await ended_or_left(receive, self._pump(send))
        if not pump.cancelled():
            pump.result()

    async def _pump(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        async with aclosing(self._events) as events:  # type: ignore[type-var]
            # A client that does not read is given up like one that left.
            with suppress(TimeoutError):
                await self._sent(send, start)
                async for piece in events:
                    body = {"type": "http.response.body", "body": piece, "more_body": True}
                    await self._sent(send, body)
                await self._sent(send, {"type": "http.response.body", "body": b""})

    async def _sent(self, send: Send, message: dict[str, object]) -> None:
        async with asyncio.timeout(self._client_timeout_s):
            await send(message)
