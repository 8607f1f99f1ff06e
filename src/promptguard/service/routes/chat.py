"""The gateway: OpenAI's chat completions, judged before and after the model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from promptguard.config import ServiceConfig
from promptguard.risk.policy import STEERING
from promptguard.service.auth import Authenticator, Scope, permitted
from promptguard.service.body import Limits
from promptguard.service.errors import ApiError, error_response, error_responses
from promptguard.service.intake import Admission, Incoming
from promptguard.service.openai_wire import (
    CONTENT_FILTER,
    ChatRequest,
    Envelope,
    read_chat_request,
    read_completion,
    refusal_completion,
    refusal_events,
)
from promptguard.service.replies import ReplyRecorder
from promptguard.service.sessions import Owner, given_session_id
from promptguard.service.streaming import EventStream, StreamedReply
from promptguard.service.upstream import CHAT, Upstream, headers_back, while_connected
from promptguard.service.verdicts import verdict_headers
from promptguard.verdict import Action

_MODEL_NAME = re.compile(r"\w[\w:@+-]*(?:[./][\w:@+-]+)*", re.ASCII)

_ANY_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "object"}},
                {"type": "null"},
            ]
        },
    },
}

_CHAT_OPENAPI: dict[str, object] = {
    "summary": "Chat completion, guarded",
    "description": "OpenAI's request and answer; fields not named here are passed through.",
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string", "minLength": 1},
                        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
                        "stream": {"type": "boolean"},
                        "user": {"type": "string"},
                        "metadata": {"type": "object"},
                    },
                }
            }
        },
    },
    "responses": {
        "200": {
            "description": "The model's answer, or a refusal with finish_reason content_filter",
            "content": {**_ANY_OBJECT, "text/event-stream": {}},
        },
    },
}
_MODELS_OPENAPI: dict[str, object] = {
    "summary": "The upstream's models",
    "responses": {"200": {"description": "OpenAI's list of models", "content": _ANY_OBJECT}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Admits, forwards and answers chat completions. `config` returns the settings in force."""

    recorder: ReplyRecorder
    upstream: Upstream
    config: Callable[[], ServiceConfig]
    authenticator: Authenticator

    async def chat(self, request: Request) -> Response:
        """Answer one chat completion request."""
        principal = permitted(request, Scope.GUARD)
        config = self.config()
        limits = Limits(
            max_messages=config.max_messages,
            max_chars=self.recorder.controller.config.max_chars,
        )
        chat = read_chat_request(await request.body(), limits)
        incoming = Incoming(
            owner=Owner(principal=principal, end_user=chat.end_user),
            messages=chat.messages,
            contents=chat.contents,
            system=chat.system,
            session_id=given_session_id(config.session_fields, request.headers, chat.body),
            operation="chat",
            model=chat.model,
            provider=self.upstream.name,
        )
        admission = await self.recorder.intake.admit(incoming)
        try:
            return await self._answer(request, chat, admission)
        except ApiError as error:
            return error_response(error.with_headers(verdict_headers(admission.result)))

    async def models(self, request: Request) -> Response:
        """Return the upstream's list of models."""
        return await self._fetched(request, "/models")

    async def model(self, request: Request, model: str) -> Response:
        """Return one of the upstream's models."""
        if not _MODEL_NAME.fullmatch(model):
            raise ApiError(404, "There is no such model.", code="model_not_found", param="model")
        return await self._fetched(request, f"/models/{model}")

    async def _fetched(self, request: Request, path: str) -> Response:
        permitted(request, Scope.GUARD)
        headers = self.upstream.headers(request.headers, lends_key=not self.authenticator.has_keys)
        response = await self.upstream.send("GET", path, headers=headers)
        return Response(response.content, response.status_code, headers_back(response))

    async def _answer(self, request: Request, chat: ChatRequest, admission: Admission) -> Response:
        if admission.result.is_blocked:
            return self._blocked(chat, admission)
        notice = STEERING if admission.is_steered else ""
        body = chat.forwarded(notice=notice, stripped=admission.stripped)
        headers = self.upstream.headers(request.headers, lends_key=not self.authenticator.has_keys)
        try:
            if chat.is_stream:
                return await self._stream(request, chat, admission, body, headers)
            return await self._whole(request, chat, admission, body, headers)
        except BaseException:
            # Also when the client has left: it may send the turn again.
            self.recorder.intake.mark_unanswered(admission)
            raise

    def _blocked(self, chat: ChatRequest, admission: Admission) -> Response:
        text = admission.result.reply or self.recorder.refusal
        if self.config().block_style == "error":
            # The client gets no assistant message, so its history goes on without one.
            self.recorder.intake.remember(admission, admission.state, "")
            raise _blocked_error(text)
        self.recorder.intake.remember(admission, admission.state, text)
        return self._refused(chat, admission, text)

    def _refused(self, chat: ChatRequest, admission: Admission, text: str) -> Response:
        envelope = Envelope(model=chat.model, created=int(time.time()))
        headers = verdict_headers(admission.result)
        if not chat.is_stream:
            completion = refusal_completion(envelope, text, choices=chat.choice_count)
            return JSONResponse(completion, headers=headers)
        events = refusal_events(
            envelope,
            text,
            begins=True,
            choices=chat.choice_count,
            has_usage=chat.wants_usage,
        )
        body = b"".join(events)
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
        response = await while_connected(request, call)
        verdict = verdict_headers(admission.result)
        if not response.is_success:
            self.recorder.intake.mark_unanswered(admission)
            back = {**headers_back(response), **verdict}
            return Response(response.content, response.status_code, back)
        answer = read_completion(response.content)
        if answer is None or answer.is_error:
            raise self.upstream.garbled()
        judge = self.recorder.judge_of(admission)
        if await judge.is_bad([choice.shown for choice in answer.choices]):
            return await self._cut(chat, admission)
        await self.recorder.record(admission, answer.choices[0].text if answer.choices else "")
        return Response(response.content, headers={**headers_back(response), **verdict})

    async def _cut(self, chat: ChatRequest, admission: Admission) -> Response:
        text = self.recorder.refusal
        await self.recorder.record(admission, text)
        # The headers tell what was done to this answer; the stored verdict is on the question.
        verdict = replace(admission.result.verdict, action=Action.BLOCK)
        result = replace(admission.result, verdict=verdict)
        if self.config().block_style == "error":
            raise _blocked_error(text).with_headers(verdict_headers(result))
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
            response = await while_connected(request, call)
            if not response.is_success:
                content = await response.aread()
                await opened.aclose()
                self.recorder.intake.mark_unanswered(admission)
                return Response(
                    content, response.status_code, {**headers_back(response), **verdict}
                )
            self.upstream.check_stream(response)
        except BaseException:
            await opened.aclose()
            raise
        config = self.config()
        reply = StreamedReply(
            admission=admission,
            recorder=self.recorder,
            upstream=self.upstream,
            response=response,
            opened=opened,
            chat=chat,
            holdback_chars=config.holdback_chars,
        )
        return EventStream(
            reply.events(),
            headers={**headers_back(response), **verdict, "content-type": "text/event-stream"},
            client_timeout_s=config.client_timeout_s,
        )


def chat_routes(gateway: Gateway) -> APIRouter:
    """Return the OpenAI-compatible routes."""
    routes = APIRouter(tags=["gateway"], responses=error_responses(502, 504))
    routes.add_api_route(
        "/v1/chat/completions", gateway.chat, methods=["POST"], openapi_extra=_CHAT_OPENAPI
    )
    routes.add_api_route(
        "/v1/models", gateway.models, methods=["GET"], openapi_extra=_MODELS_OPENAPI
    )
    routes.add_api_route("/v1/models/{model:path}", gateway.model, methods=["GET"])
    return routes


def _blocked_error(text: str) -> ApiError:
    """Return the error for a blocked turn where blocks are errors."""
    return ApiError(400, text, code=CONTENT_FILTER, param="messages")
