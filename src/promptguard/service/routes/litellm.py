"""LiteLLM's generic guardrail endpoint, which guards a LiteLLM proxy by configuration alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from promptguard.computations import offloaded
from promptguard.conversation import ComparableMessage, Role
from promptguard.risk.ledger import STRIPPED
from promptguard.service.auth import Principal, Scope, permitted
from promptguard.service.body import Limits, Reading, poisoned_in, with_stripped
from promptguard.service.errors import error_responses
from promptguard.service.intake import Admission, Incoming
from promptguard.service.lanes import computed
from promptguard.service.openai_wire import read_messages, shown_in
from promptguard.service.replies import ReplyRecorder
from promptguard.service.routes.long_bodies import LongBodyRoute
from promptguard.service.routes.recent import Recent
from promptguard.service.sessions import Owner, given_session_id
from promptguard.service.settings import LiveSettings
from promptguard.service.verdicts import block_reason
from promptguard.turns.exchanges import with_notice
from promptguard.turns.judge import TurnJudge
from promptguard.turns.replies import ReplyWatch
from promptguard.verdict import Mode

MAX_CALLS = 1000
# LiteLLM sends this in place of the values of headers that it does not forward.
_HIDDEN_HEADER = "[present]"
Texts = list[str]


class GuardrailRequest(BaseModel):
    """What LiteLLM sends; fields not used here are ignored."""

    input_type: Literal["request", "response"]
    texts: Texts | None = Field(default=None, max_length=4000)
    structured_messages: list[dict[str, Any]] | None = Field(default=None, max_length=4000)
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=4000)
    tool_calls: list[dict[str, Any]] | None = Field(default=None, max_length=4000)
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
    tools: list[dict[str, Any]] | None = None
    structured_messages: list[dict[str, Any]] | None = None
    stream_holdback_chars: list[int] | None = None


class RecentCalls(Recent[tuple[str, str, str], Admission]):
    """The latest admitted turns by tenant and name of the key, and LiteLLM's call id."""

    def __init__(self) -> None:
        super().__init__(MAX_CALLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LitellmApi:
    """Handler of LiteLLM's route; `calls` finds the turn that a response answers."""

    recorder: ReplyRecorder
    live: LiveSettings
    calls: RecentCalls

    async def apply(self, request: Request, body: GuardrailRequest) -> GuardrailReply:
        """Judge what LiteLLM is about to send to a model, or got from it."""
        caller = permitted(request, Scope.GUARD)
        if body.input_type == "request":
            return await self._request(caller, body)
        return await self._response(caller, body)

    async def _request(self, caller: Principal, body: GuardrailRequest) -> GuardrailReply:
        limits = Limits.of(self.live.current.service, self.recorder.controller.config)
        reading = await computed(_texts_in, body, limits)
        if not reading.messages and not reading.contents:
            return GuardrailReply(action="NONE")
        incoming = Incoming(
            owner=_owner(caller, body),
            messages=tuple(reading.messages),
            contents=tuple(reading.contents),
            system="\n".join(reading.system),
            session_id=self._session_id(body),
            learns_replies=True,
            model=body.model or "",
            provider="litellm",
        )
        admission = await self.recorder.intake.admit(incoming)
        self.recorder.intake.remember(admission, admission.state)
        if body.litellm_call_id:
            call = (caller.tenant, caller.name, body.litellm_call_id)
            self.calls.remember(call, admission)
        if admission.result.is_blocked:
            return _blocked(admission)
        poisoned = poisoned_in((*reading.messages, *reading.contents), admission.stripped)
        reply = await computed(_replaced, body, poisoned, reading.messages)
        # LiteLLM has no field for this text, so what cannot be taken out is not let through.
        return _noticed(reply or _blocked(admission), body, poisoned, admission.result.notice)

    async def _response(self, caller: Principal, body: GuardrailRequest) -> GuardrailReply:
        """Judge an answer, whole or so far; it is recorded when the client resends it."""
        texts = body.texts or []
        # The arguments of a call leave the model as well as its words do.
        shown = [*texts, shown_in(body.tool_calls)]
        admission = self.calls.find((caller.tenant, caller.name, body.litellm_call_id or ""))
        if admission is not None:
            is_bad = await self.recorder.judge_of(admission).is_bad(shown)
        else:
            controller = self.recorder.controller
            is_bad = controller.config.mode == "enforce" and await asyncio.to_thread(
                offloaded, _is_bad_alone, controller.judge, shown
            )
        if is_bad:
            return GuardrailReply(action="BLOCKED", blocked_reason=self.recorder.refusal)
        # LiteLLM reads one number per choice and ignores a bare number.
        holdback = [self.live.current.service.holdback_chars] * len(texts)
        return GuardrailReply(action="NONE", stream_holdback_chars=holdback)

    def _session_id(self, body: GuardrailRequest) -> str | None:
        headers = {
            name.lower(): value
            for name, value in (body.request_headers or {}).items()
            if isinstance(value, str) and value != _HIDDEN_HEADER
        }
        params = body.additional_provider_specific_params or {}
        places = (*self.live.current.service.session_fields, "body:session_id")
        session_id = given_session_id(places, headers, params)
        # A trace id names one request unless the client sets it, so it is the last resort for
        # bodies without a history by which the session could be found.
        if session_id is None and not body.structured_messages and body.litellm_trace_id:
            return given_session_id(("body:id",), {}, {"id": body.litellm_trace_id})
        return session_id


def _texts_in(body: GuardrailRequest, limits: Limits) -> Reading:
    reading = Reading(limits=limits)
    if body.structured_messages:
        reading = read_messages(body.structured_messages, limits)
    else:
        for at, text in enumerate(body.texts or ()):
            reading.message(Role.USER, text, ("texts", at))
        for at, call in enumerate(body.tool_calls or ()):
            reading.side_text(call, ("tool_calls", at))
    for at, tool in enumerate(body.tools or ()):
        reading.content(tool, ("tools", at))
    return reading


def litellm_routes(api: LitellmApi) -> APIRouter:
    """Return LiteLLM's route."""
    routes = APIRouter(tags=["guard"], responses=error_responses(), route_class=LongBodyRoute)
    routes.add_api_route("/beta/litellm_basic_guardrail_api", api.apply, methods=["POST"])
    return routes


def _is_bad_alone(judge: TurnJudge, texts: Texts) -> bool:
    """Judge answers whose turn is not known here, as if their conversation were SAFE."""
    # A watch for each: choices read one after the other would be one text.
    return any(ReplyWatch(judge.instinct, Mode.SAFE).feed(text) for text in texts)


def _blocked(admission: Admission) -> GuardrailReply:
    reason = block_reason(admission.result.verdict)
    return GuardrailReply(action="BLOCKED", blocked_reason=reason)


def _replaced(
    body: GuardrailRequest,
    poisoned: Sequence[ComparableMessage],
    messages: Sequence[ComparableMessage],
) -> GuardrailReply | None:
    """Return what LiteLLM is to send instead; None where it has no field for a poisoned text."""
    if not poisoned:
        return GuardrailReply(action="NONE")
    in_tools = [item for item in poisoned if item.place[0] == "tools"]
    asked = "\n".join(item.content for item in messages if item.role is Role.USER)
    given = [ComparableMessage.of(Role.TOOL, text).content for text in body.texts or ()]
    # The user's stay.
    others = [(at, text) for at, text in enumerate(given) if text and text not in asked]
    stripped: set[int] = set()
    for item in (item for item in poisoned if item.place[0] != "tools"):
        # LiteLLM sends each part of a message as a text of its own.
        parts = [(at, text) for at, text in others if text in item.content]
        if item.content not in "\n".join(text for _, text in parts):
            return None
        stripped.update(at for at, _ in parts)
    texts = [STRIPPED if at in stripped else text for at, text in enumerate(body.texts or ())]
    tools = with_stripped({"tools": body.tools}, in_tools)
    assert isinstance(tools, dict)
    return GuardrailReply(
        action="GUARDRAIL_INTERVENED", texts=texts, tools=tools["tools"] if in_tools else None
    )


def _noticed(
    reply: GuardrailReply,
    body: GuardrailRequest,
    poisoned: Sequence[ComparableMessage],
    notice: str,
) -> GuardrailReply:
    """Return the reply with a notice to the model, where there are messages to put it in."""
    # Bare texts have no place for a notice.
    if not notice or not body.structured_messages or reply.action == "BLOCKED":
        return reply
    said = [item for item in poisoned if item.place[0] == "messages"]
    cleaned = with_stripped({"messages": body.structured_messages}, said)
    assert isinstance(cleaned, dict)
    noticed = [dict(message) for message in with_notice(cleaned["messages"], notice)]
    update = {"action": "GUARDRAIL_INTERVENED", "structured_messages": noticed}
    return reply.model_copy(update=update)


def _owner(caller: Principal, body: GuardrailRequest) -> Owner:
    """Return whose request it is, with LiteLLM's own key and end user."""
    data = body.request_data or {}
    key, user = data.get("user_api_key_hash"), data.get("user_api_key_end_user_id")
    return Owner(
        principal=caller,
        caller_key=key if isinstance(key, str) else "",
        end_user=user if isinstance(user, str) else "",
    )
