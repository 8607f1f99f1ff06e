"""The gateway: conversations in several wire formats, judged before and after the model."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from promptguard.config import ServiceConfig
from promptguard.conversation import ComparableMessage, Role
from promptguard.protocols import SessionKey
from promptguard.service.anthropic_wire import MessagesWire
from promptguard.service.auth import Authenticator, Scope, permitted
from promptguard.service.body import Limits, name_of
from promptguard.service.completions_wire import CompletionsWire
from promptguard.service.errors import ApiError, error_responses
from promptguard.service.intake import Admission, Incoming
from promptguard.service.lanes import computed
from promptguard.service.openai_wire import ChatWire
from promptguard.service.replies import ReplyRecorder
from promptguard.service.responses_wire import ResponsesWire
from promptguard.service.routes.chat_openapi import CHAT, MODELS, described
from promptguard.service.routes.recent import Recent
from promptguard.service.sessions import Owner, given_session_id
from promptguard.service.settings import LiveSettings
from promptguard.service.streaming import EventStream, StreamedReply
from promptguard.service.upstream import Upstream, headers_back, while_connected
from promptguard.service.verdicts import verdict_headers
from promptguard.service.wire import GuardedRequest, Refusal, Wire
from promptguard.verdict import Action

MAX_ANSWERS = 20_000
_MAX_PLACES = 16
_MAX_HEADER = 1000
_NO_BREAKS = dict.fromkeys((*range(32), 127), "?")
# It becomes part of the upstream's path: no `..`, no query, no host.
_MODEL_NAME = re.compile(r"\w[\w:@+-]*(?:[./][\w:@+-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswer:
    """An answer's session, and the upstream's own answer that a next request goes on from."""

    key: SessionKey
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Admits, forwards and answers conversations."""

    recorder: ReplyRecorder
    upstream: Upstream
    live: LiveSettings
    authenticator: Authenticator
    answers: Recent[tuple[Owner, str], KnownAnswer] = field(
        default_factory=lambda: Recent(MAX_ANSWERS)
    )

    async def answer(self, request: Request, wire: Wire) -> Response:
        """Answer one request in its own format, errors included."""
        config = self.live.current.service
        try:
            principal = permitted(request, Scope.GUARD)
            asked = await computed(wire.read_request, await request.body(), self.limits())
            owner = Owner(principal=principal, end_user=asked.end_user)
            known = self.answers.find((owner, asked.continues)) if asked.continues else None
            admission = await self.recorder.intake.admit(
                Incoming(
                    owner=owner,
                    messages=asked.messages,
                    contents=asked.contents,
                    system=asked.system,
                    session_id=_session_id(config, request, asked, known),
                    continues=None if known is None else known.key,
                    model=asked.model,
                    provider=self.upstream.name,
                )
            )
            # A refusal of ours has an id that the upstream never gave.
            if known is not None and known.upstream != asked.continues:
                asked = asked.going_on_from(known.upstream)
            turn = _Turn(wire=wire, request=request, asked=asked, admission=admission)
            try:
                return await self._answer(turn)
            except ApiError as error:
                # Clients learn the verdict on their turn also where the upstream failed.
                raise error.with_headers(turn.headers) from None
        except ApiError as error:
            return JSONResponse(wire.error_body(error), error.status_code, error.headers)

    async def models(self, request: Request) -> Response:
        """Return the upstream's list of models."""
        return await self._fetched(request, "/models")

    async def model(self, request: Request, model: str) -> Response:
        """Return one of the upstream's models."""
        if not _MODEL_NAME.fullmatch(model):
            raise ApiError(404, "There is no such model.", code="model_not_found", param="model")
        return await self._fetched(request, f"/models/{model}")

    def limits(self) -> Limits:
        """Return how much a request may hold."""
        return Limits.of(self.live.current.service, self.recorder.controller.config)

    def passed_headers(self, request: Request) -> dict[str, str]:
        """Return the headers that go to the upstream with a request."""
        return self.upstream.headers(request.headers, lends_key=not self.authenticator.has_keys)

    def blocked_error(self, text: str, field: str) -> ApiError:
        """Return the error for a blocked turn where blocks are errors; `field` has its words."""
        return ApiError(400, text, code=self.live.current.service.block_code, param=field)

    async def _fetched(self, request: Request, path: str) -> Response:
        permitted(request, Scope.GUARD)
        response = await self.upstream.send("GET", path, headers=self.passed_headers(request))
        return Response(response.content, response.status_code, headers_back(response))

    async def _answer(self, turn: _Turn) -> Response:
        admission = turn.admission
        if admission.result.is_blocked:
            return self._blocked(turn)
        body = turn.wire.forwarded(
            turn.asked, notice=admission.result.notice, stripped=admission.stripped
        )
        try:
            if turn.asked.is_stream:
                return await self._stream(turn, body)
            return await self._whole(turn, body)
        except BaseException:
            # Also when the client has left: it may send the turn again.
            self.recorder.intake.mark_unanswered(admission)
            raise

    def _blocked(self, turn: _Turn) -> Response:
        admission = turn.admission
        text = admission.result.reply or self.recorder.refusal
        is_error = self.live.current.service.block_style == "error"
        # With an error the client gets no assistant message: its history goes on without one.
        reply = None if is_error else ComparableMessage.of(Role.ASSISTANT, text)
        self.recorder.intake.remember(admission, admission.state, reply)
        if is_error:
            raise self.blocked_error(text, turn.wire.field)
        return self._refused(turn, text)

    async def _whole(self, turn: _Turn, body: bytes) -> Response:
        admission = turn.admission
        call = self.upstream.send(
            "POST", turn.wire.path, body=body, headers=self.passed_headers(turn.request)
        )
        response = await while_connected(turn.request, call)
        if not response.is_success:
            self.recorder.intake.mark_unanswered(admission)
            back = {**headers_back(response), **turn.headers}
            return Response(response.content, response.status_code, back)
        answer = turn.wire.read_answer(response.content)
        if answer is None or answer.is_error:
            raise self.upstream.garbled()
        self._name(turn, answer.id)
        judge = self.recorder.judge_of(admission)
        if await judge.is_bad([choice.shown for choice in answer.choices]):
            return await self._cut(turn)
        await self.recorder.record(admission, answer.choices[0].text if answer.choices else "")
        # The bytes as they came, fields unknown here included.
        return Response(response.content, headers={**headers_back(response), **turn.headers})

    async def _cut(self, turn: _Turn) -> Response:
        text, cut = self.recorder.refusal, turn.cut()
        if self.live.current.service.block_style == "error":
            # Without an answer: the client gets none, and may send the turn again.
            raise self.blocked_error(text, turn.wire.field).with_headers(cut.headers)
        # What the client gets is what it will resend, so the refusal is stored as the answer.
        await self.recorder.record(turn.admission, text)
        return self._refused(cut, text)

    def _refused(self, turn: _Turn, text: str) -> Response:
        """Return a refusal as an answer, or as a stream that is one."""
        name = turn.wire.new_id()
        # The upstream knows nothing of a refusal, so the next request goes on from before it.
        self._name(turn, name, turn.asked.continues)
        refusal = Refusal(
            asked=turn.asked, text=text, model=turn.asked.model, created=int(time.time()), id=name
        )
        headers = dict(turn.headers)
        if not turn.asked.is_stream:
            return JSONResponse(turn.wire.refusal(refusal), headers=headers)
        events = b"".join(turn.wire.refusal_events(refusal))
        return Response(events, media_type="text/event-stream", headers=headers)

    def _name(self, turn: _Turn, answer: str, upstream: str | None = None) -> None:
        """Remember the answer to a turn; `upstream` is the upstream's own, if it is another."""
        known = KnownAnswer(
            key=turn.admission.key, upstream=answer if upstream is None else upstream
        )
        self.answers.remember((turn.admission.owner, answer), known)

    async def _stream(self, turn: _Turn, body: bytes) -> Response:
        opened, admission = AsyncExitStack(), turn.admission
        try:
            called = self.upstream.stream(
                turn.wire.path, body=body, headers=self.passed_headers(turn.request)
            )
            response = await while_connected(turn.request, opened.enter_async_context(called))
            back = {**headers_back(response), **turn.headers}
            if not response.is_success:
                content = await self.upstream.rest_of(response)
                await opened.aclose()
                self.recorder.intake.mark_unanswered(admission)
                return Response(content, response.status_code, back)
            self.upstream.check_stream(response)
        except BaseException:
            await opened.aclose()
            raise
        config = self.live.current.service
        reply = StreamedReply(
            wire=turn.wire,
            admission=admission,
            recorder=self.recorder,
            upstream=self.upstream,
            response=response,
            opened=opened,
            request=turn.asked,
            holdback_chars=config.holdback_chars,
            named=partial(self._name, turn),
        )
        return EventStream(
            reply.events(),
            headers={**back, "content-type": "text/event-stream"},
            client_timeout_s=config.client_timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One admitted request."""

    wire: Wire
    request: Request
    asked: GuardedRequest
    admission: Admission

    @property
    def headers(self) -> Mapping[str, str]:
        """What every response to it carries: the verdict, what was replaced or not judged."""
        headers = verdict_headers(self.admission.result)
        stripped = self.asked.poisoned(self.admission.stripped)
        for name, places in (
            ("x-promptguard-stripped", [name_of(item.place) for item in stripped]),
            ("x-promptguard-not-judged", self.asked.unjudged),
        ):
            if places:
                headers[name] = _listed(places)
        return headers

    def cut(self) -> _Turn:
        """Return the turn whose answer was cut.

        Its headers tell what was done to the answer; the stored verdict is on the question.
        """
        result = self.admission.result
        verdict = replace(result.verdict, action=Action.BLOCK)
        return replace(
            self, admission=replace(self.admission, result=replace(result, verdict=verdict))
        )


def _session_id(
    config: ServiceConfig, request: Request, asked: GuardedRequest, known: KnownAnswer | None
) -> str | None:
    given = given_session_id(config.session_fields, request.headers, asked.body)
    if given is None and known is None and asked.continues:
        # The history lies with the upstream, and what this guard knew of it is forgotten.
        return given_session_id(("body:id",), {}, {"id": asked.continues})
    return given


def _listed(places: Sequence[str]) -> str:
    """Return places as a header's value; a client's own names may hold what headers may not."""
    shown = ", ".join(places[:_MAX_PLACES])
    return shown.encode("ascii", "replace").decode().translate(_NO_BREAKS)[:_MAX_HEADER]


def chat_routes(gateway: Gateway) -> APIRouter:
    """Return the routes of the gateway."""
    routes = APIRouter(tags=["gateway"], responses=error_responses(502, 504))
    responses = described("Response, guarded", "input")
    messages = described("Message, guarded", "messages")
    completions = described("Completion, guarded", "prompt")
    for wire, name, what, extra in (
        (ChatWire, "chat", "chat completion request", CHAT),
        (ResponsesWire, "responses", "request of OpenAI's Responses API", responses),
        (MessagesWire, "messages", "request of Anthropic's Messages API", messages),
        (CompletionsWire, "completions", "request of the older completions API", completions),
    ):
        routes.add_api_route(
            f"/v1{wire.path}",
            _handler(gateway, wire),
            methods=["POST"],
            name=name,
            description=f"Answer a {what}.",
            openapi_extra=extra,
        )
    routes.add_api_route("/v1/models", gateway.models, methods=["GET"], openapi_extra=MODELS)
    routes.add_api_route("/v1/models/{model:path}", gateway.model, methods=["GET"])
    return routes


def _handler(
    gateway: Gateway, wire: Callable[[], Wire]
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await gateway.answer(request, wire())

    return answer
