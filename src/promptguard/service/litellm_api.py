"""LiteLLM's generic guardrail endpoint: guarding a LiteLLM proxy without code on its side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from promptguard.config import ServiceConfig
from promptguard.conversation import Role
from promptguard.service.auth import Principal, Scope
from promptguard.service.chat_request import Said, read_messages
from promptguard.service.intake import Admission, Incoming
from promptguard.service.openapi import error_responses
from promptguard.service.recent_calls import RecentCalls
from promptguard.service.replies import ReplyDesk
from promptguard.service.reply_watch import ReplyWatch
from promptguard.service.request_info import permitted
from promptguard.service.session_key import Owner, given_session_id
from promptguard.service.turn_log import log_turn
from promptguard.state import Mode

Texts = list[str]


class GuardrailRequest(BaseModel):
    """What LiteLLM sends; fields not used here are ignored."""

    input_type: Literal["request", "response"]
    texts: Texts | None = Field(default=None, max_length=4000)
    structured_messages: list[dict[str, Any]] | None = Field(default=None, max_length=4000)
    litellm_call_id: str | None = Field(default=None, max_length=512)
    litellm_trace_id: str | None = Field(default=None, max_length=512)
    request_data: dict[str, Any] | None = None
    request_headers: dict[str, Any] | None = None
    additional_provider_specific_params: dict[str, Any] | None = None
    model: str | None = Field(default=None, max_length=512)


class GuardrailReply(BaseModel):
    """What LiteLLM expects."""

    action: Literal["NONE", "BLOCKED", "GUARDRAIL_INTERVENED"]
    blocked_reason: str | None = None
    texts: Texts | None = None
    stream_holdback_chars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LitellmApi:
    """The route's work; `calls` remembers which turn a response answers."""

    desk: ReplyDesk
    service: Callable[[], ServiceConfig]
    calls: RecentCalls

    async def apply(self, request: Request, body: GuardrailRequest) -> GuardrailReply:
        """Judge what LiteLLM is about to send to a model, or got from it."""
        caller = permitted(request, Scope.GUARD)
        if body.input_type == "request":
            return await self._request(caller, body)
        return await self._response(caller, body)

    async def _request(self, caller: Principal, body: GuardrailRequest) -> GuardrailReply:
        said = self._said(body)
        if not said:
            return GuardrailReply(action="NONE")
        incoming = Incoming(
            owner=Owner(principal=caller, end_user=_end_user(body)),
            said=said,
            session_id=self._session_id(body),
            learns_replies=True,
        )
        with self.desk.telemetry.turn_span("guard", model=body.model or "", provider="litellm"):
            admission = await self.desk.intake.admit(incoming)
        log_turn(admission, caller)
        self.desk.intake.stand(admission, admission.state, "")
        if body.litellm_call_id:
            self.calls.note(caller, body.litellm_call_id, admission)
        if admission.result.is_blocked:
            return GuardrailReply(action="BLOCKED", blocked_reason=_reason(admission))
        return GuardrailReply(action="NONE")

    async def _response(self, caller: Principal, body: GuardrailRequest) -> GuardrailReply:
        """Judge an answer, whole or so far; it is recorded when the client resends it."""
        holdback = self.service().holdback_chars
        texts = body.texts or []
        admission = self.calls.find(caller, body.litellm_call_id or "")
        if admission is not None:
            is_bad = await self.desk.watcher(admission).is_bad(texts)
        else:
            watch = ReplyWatch(self.desk.controller.judge.instinct, Mode.SAFE)
            is_bad = any(watch.judge(text) for text in texts) and self._is_enforced
        if is_bad:
            return GuardrailReply(action="BLOCKED", blocked_reason=self.desk.refusal)
        return GuardrailReply(action="NONE", stream_holdback_chars=holdback)

    @property
    def _is_enforced(self) -> bool:
        return self.desk.controller.config.mode == "enforce"

    def _said(self, body: GuardrailRequest) -> tuple[Said, ...]:
        service = self.service()
        if body.structured_messages:
            return read_messages(
                body.structured_messages,
                max_messages=service.max_messages,
                max_chars=self.desk.controller.config.max_chars,
            )
        said = (Said.of(Role.USER, text) for text in body.texts or ())
        return tuple(item for item in said if item.text)

    def _session_id(self, body: GuardrailRequest) -> str | None:
        headers = {
            name.lower(): value
            for name, value in (body.request_headers or {}).items()
            if isinstance(value, str)
        }
        params = body.additional_provider_specific_params or {}
        places = (*self.service().session_fields, "body:session_id")
        found = given_session_id(places, headers, params)
        # A trace id names one request unless the client sets it, so it is the last resort for
        # bodies without a history from which the session could be told.
        if found is None and not body.structured_messages and body.litellm_trace_id:
            return given_session_id(("body:id",), {}, {"id": body.litellm_trace_id})
        return found


def litellm_routes(api: LitellmApi) -> APIRouter:
    """Return LiteLLM's route."""
    routes = APIRouter(tags=["guard"], responses=error_responses())
    routes.add_api_route(
        "/beta/litellm_basic_guardrail_api",
        api.apply,
        methods=["POST"],
        response_model=GuardrailReply,
    )
    return routes


def _end_user(body: GuardrailRequest) -> str:
    """Return whom LiteLLM knows the caller as, so that its keys are kept apart as well."""
    data = body.request_data or {}
    names = ("user_api_key_hash", "user_api_key_end_user_id")
    return "/".join(str(data[name]) for name in names if isinstance(data.get(name), str))


def _reason(admission: Admission) -> str:
    verdict = admission.result.verdict
    if verdict is None:
        return "The turn could not be judged."
    tags = f" ({', '.join(verdict.tags)})" if verdict.tags else ""
    return f"The conversation is {verdict.mode.name} at turn {verdict.turn}{tags}."
