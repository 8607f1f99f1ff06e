"""The gateway: OpenAI's chat completions, guard first, then the model."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from promptguard.config import ServiceConfig
from promptguard.risk.policy import STEERING
from promptguard.service.answers import (
    Envelope,
    blocked_fault,
    refusal,
    refusal_events,
    verdict_headers,
)
from promptguard.service.auth import Scope
from promptguard.service.chat_request import ChatRequest, read_chat_request
from promptguard.service.completion import read_answer
from promptguard.service.faults import Fault, error_response
from promptguard.service.intake import Admission, Incoming
from promptguard.service.openapi import CHAT_OPENAPI, MODELS_OPENAPI, error_responses
from promptguard.service.replies import ReplyDesk
from promptguard.service.request_info import end_user_of, principal_of
from promptguard.service.session_key import Owner, given_session_id
from promptguard.service.streaming import EventStream, StreamedReply
from promptguard.service.turn_log import log_turn
from promptguard.service.upstream import CHAT, Upstream, headers_back
from promptguard.state import Action

T = TypeVar("T")
_MODEL_NAME = re.compile(r"\w[\w:@+-]*(?:[./][\w:@+-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Admits, forwards and answers. `service` gives the settings of the moment."""

    desk: ReplyDesk
    upstream: Upstream
    service: Callable[[], ServiceConfig]
    has_keys: Callable[[], bool]

    async def chat(self, request: Request) -> Response:
        """Answer one chat completion request."""
        principal = principal_of(request)
        principal.require(Scope.GUARD)
        service = self.service()
        chat = read_chat_request(
            await request.body(),
            max_messages=service.max_messages,
            max_chars=self.desk.controller.config.max_chars,
        )
        incoming = Incoming(
            owner=Owner(principal=principal, end_user=end_user_of(chat.body)),
            said=chat.said,
            session_id=given_session_id(service.session_fields, request.headers, chat.body),
        )
        telemetry = self.desk.telemetry
        with telemetry.turn_span("chat", model=chat.model, provider=self.upstream.name) as span:
            admission = await self.desk.intake.admit(incoming)
            span.set_attribute("gen_ai.conversation.id", admission.key.session_id)
        log_turn(admission, principal)
        try:
            return await self._answer(request, chat, admission)
        except Fault as fault:
            headers = {**verdict_headers(admission.result), **(fault.headers or {})}
            return error_response(
                Fault(
                    fault.status_code,
                    str(fault.detail),
                    code=fault.code,
                    param=fault.param,
                    headers=headers,
                )
            )

    async def models(self, request: Request) -> Response:
        """Return the upstream's list of models."""
        return await self._fetched(request, "/models")

    async def model(self, request: Request, model: str) -> Response:
        """Return one of the upstream's models."""
        if not _MODEL_NAME.fullmatch(model):
            raise Fault(404, "There is no such model.", code="model_not_found", param="model")
        return await self._fetched(request, f"/models/{model}")

    async def _fetched(self, request: Request, path: str) -> Response:
        principal_of(request).require(Scope.GUARD)
        headers = self.upstream.headers(request.headers, lends_key=not self.has_keys())
        response = await self.upstream.send("GET", path, headers=headers)
        return Response(response.content, response.status_code, headers_back(response))

    async def _answer(self, request: Request, chat: ChatRequest, admission: Admission) -> Response:
        if admission.result.is_blocked:
            return self._blocked(chat, admission)
        body = chat.steered(STEERING) if admission.is_steered else chat.raw
        headers = self.upstream.headers(request.headers, lends_key=not self.has_keys())
        try:
            if chat.is_stream:
                return await self._stream(request, chat, admission, body, headers)
            return await self._whole(request, chat, admission, body, headers)
        except BaseException:
            self.desk.intake.failed(admission)
            raise

    def _blocked(self, chat: ChatRequest, admission: Admission) -> Response:
        text = admission.result.reply or self.desk.refusal
        if self.service().block_style == "error":
            self.desk.intake.stand(admission, admission.state, "")
            raise blocked_fault(admission.result, text)
        self.desk.intake.stand(admission, admission.state, text)
        return self._refused(chat, admission, text)

    def _refused(self, chat: ChatRequest, admission: Admission, text: str) -> Response:
        envelope = Envelope(model=chat.model, created=int(time.time()))
        headers = verdict_headers(admission.result)
        if not chat.is_stream:
            return JSONResponse(refusal(envelope, text), headers=headers)
        body = b"".join(refusal_events(envelope, text, begins=True))
        return Response(body, media_type="text/event-stream", headers=headers)

    async def _whole(
        self,
        request: Request,
        chat: ChatRequest,
        admission: Admission,
        body: bytes,
        headers: dict[str, str],
    ) -> Response:
        call = self.upstream.send("POST", CHAT, body=body, headers=headers)
        response = await _while_connected(request, call)
        verdict = verdict_headers(admission.result)
        if not response.is_success:
            self.desk.intake.failed(admission)
            back = {**headers_back(response), **verdict}
            return Response(response.content, response.status_code, back)
        answer = read_answer(response.content)
        if answer is None or answer.is_error:
            raise self.upstream.garbled()
        watcher = self.desk.watcher(admission)
        if await watcher.is_bad([piece.shown for piece in answer.pieces]):
            return await self._cut(chat, admission)
        await self.desk.record(admission, answer.pieces[0].text if answer.pieces else "")
        return Response(response.content, headers={**headers_back(response), **verdict})

    async def _cut(self, chat: ChatRequest, admission: Admission) -> Response:
        text = self.desk.refusal
        await self.desk.record(admission, text)
        result = replace(admission.result, action=Action.BLOCK)
        if self.service().block_style == "error":
            raise blocked_fault(result, text)
        return self._refused(chat, replace(admission, result=result), text)

    async def _stream(
        self,
        request: Request,
        chat: ChatRequest,
        admission: Admission,
        body: bytes,
        headers: dict[str, str],
    ) -> Response:
        opened = AsyncExitStack()
        verdict = verdict_headers(admission.result)
        try:
            call = opened.enter_async_context(self.upstream.stream(body, headers))
            response = await _while_connected(request, call)
            if not response.is_success:
                content = await response.aread()
                await opened.aclose()
                self.desk.intake.failed(admission)
                return Response(
                    content, response.status_code, {**headers_back(response), **verdict}
                )
            self.upstream.check_stream(response)
        except BaseException:
            await opened.aclose()
            raise
        service = self.service()
        reply = StreamedReply(
            admission=admission,
            desk=self.desk,
            upstream=self.upstream,
            response=response,
            opened=opened,
            model=chat.model,
            holdback_chars=service.holdback_chars,
        )
        return EventStream(
            reply.events(),
            headers={**headers_back(response), **verdict, "content-type": "text/event-stream"},
            client_timeout_s=service.client_timeout_s,
        )


def gateway_routes(gateway: Gateway) -> APIRouter:
    """Return the OpenAI-compatible routes."""
    routes = APIRouter(tags=["gateway"], responses=error_responses(502, 504))
    routes.add_api_route(
        "/v1/chat/completions", gateway.chat, methods=["POST"], openapi_extra=CHAT_OPENAPI
    )
    routes.add_api_route(
        "/v1/models", gateway.models, methods=["GET"], openapi_extra=MODELS_OPENAPI
    )
    routes.add_api_route("/v1/models/{model:path}", gateway.model, methods=["GET"])
    return routes


async def _while_connected(request: Request, work: Coroutine[object, object, T]) -> T:
    """Return what `work` brings; a client that leaves meanwhile cancels it."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    if task.cancelled():
        raise Fault(499, "The client left before the answer came.", code="client_left")
    return task.result()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
