"""The guard beside your own stack: judge a turn, a prompt, or a conversation's consistency."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from promptguard.config import ServiceConfig
from promptguard.conversation import Role
from promptguard.evaluators.metrics import metrics_as_json
from promptguard.guard import PromptGuard
from promptguard.protocols import ClientHints
from promptguard.rubrics.contradiction import judge_contradiction
from promptguard.service.answers import verdict_headers
from promptguard.service.auth import Scope
from promptguard.service.chat_request import Said, read_messages
from promptguard.service.intake import Admission, Incoming
from promptguard.service.openapi import error_responses
from promptguard.service.replies import ReplyDesk
from promptguard.service.request_info import permitted
from promptguard.service.session_key import Owner, plain_id
from promptguard.service.turn_log import log_turn
from promptguard.service.turn_view import TurnView, turn_view

MAX_TEXT = 1_000_000
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ClientBody(_Body):
    """What the client saw of the writing."""

    typing_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    keystrokes: int | None = Field(default=None, ge=0)


class TurnRequest(_Body):
    """One turn: the new user input, or the whole conversation so far."""

    session_id: str | None = Field(default=None, min_length=1, max_length=512)
    user_input: Text | None = None
    messages: list[dict[str, Any]] | None = Field(default=None, min_length=1)
    tool_contents: list[Text] = Field(default=[], max_length=64)
    reply: Text | None = None
    client: ClientBody = ClientBody()

    @model_validator(mode="after")
    def _one_of_both(self) -> TurnRequest:
        if (self.user_input is None) == (self.messages is None):
            raise ValueError("give user_input or messages, one of them")
        return self


class EvaluateRequest(_Body):
    """One prompt with its layers."""

    prompt: Text
    system: str | None = Field(default=None, max_length=MAX_TEXT)
    application: str | None = Field(default=None, max_length=MAX_TEXT)
    history: list[dict[str, Any]] = Field(default=[], max_length=2000)


class RubricRequest(_Body):
    """A conversation."""

    messages: list[dict[str, Any]] = Field(min_length=1, max_length=400)


class PositionView(BaseModel):
    """Where one assistant message stands."""

    index: int
    position: str


class RubricView(BaseModel):
    """Whether the assistant contradicts itself, and why."""

    contradicts_itself: bool
    verdict: str
    reason: str
    positions: list[PositionView]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardApi:
    """The routes' work."""

    desk: ReplyDesk
    guard: PromptGuard
    service: Callable[[], ServiceConfig]

    async def turn(self, request: Request, body: TurnRequest, response: Response) -> TurnView:
        """Judge one turn and record it; with `reply`, judge and record the answer as well."""
        principal = permitted(request, Scope.GUARD)
        said, reply = self._said(body)
        incoming = Incoming(
            owner=Owner(principal=principal),
            said=said,
            session_id=None if body.session_id is None else plain_id(body.session_id),
            client=ClientHints(typing_ms=body.client.typing_ms, keystrokes=body.client.keystrokes),
            learns_replies=True,
        )
        with self.desk.telemetry.turn_span("guard", model="", provider="") as span:
            admission = await self.desk.intake.admit(incoming)
            span.set_attribute("gen_ai.conversation.id", admission.key.session_id)
        log_turn(admission, principal)
        response.headers.update(verdict_headers(admission.result))
        return await self._view(admission, reply)

    async def evaluate(self, request: Request, body: EvaluateRequest) -> Response:
        """Judge one prompt, layer by layer."""
        permitted(request, Scope.GUARD)
        metrics = await self.guard.evaluate(
            body.prompt, system=body.system, application=body.application, history=body.history
        )
        return Response(metrics_as_json(metrics), media_type="application/json")

    async def rubric(self, request: Request, body: RubricRequest) -> RubricView:
        """Say whether the assistant contradicts itself in a conversation."""
        permitted(request, Scope.GUARD)
        found = await asyncio.to_thread(judge_contradiction, body.messages)
        return RubricView(
            contradicts_itself=found.is_contradiction,
            verdict=found.verdict.value,
            reason=found.reason,
            positions=[
                PositionView(index=each.index, position=each.position.value)
                for each in found.positions
            ],
        )

    def _said(self, body: TurnRequest) -> tuple[tuple[Said, ...], str | None]:
        limit = self.desk.controller.config.max_chars
        tools = tuple(Said.of(Role.TOOL, text) for text in body.tool_contents)
        if body.messages is None:
            return (Said.of(Role.USER, body.user_input or ""), *tools), body.reply
        most = self.service().max_messages
        said = read_messages(body.messages, max_messages=most, max_chars=limit)
        reply = body.reply
        if reply is None and said and said[-1].role is Role.ASSISTANT:
            said, reply = said[:-1], said[-1].text
        return (*said, *tools), reply

    async def _view(self, admission: Admission, reply: str | None) -> TurnView:
        if reply is None or admission.result.is_blocked:
            # Which words the client shows for a refusal is its own affair.
            self.desk.intake.stand(admission, admission.state, "")
            return turn_view(admission)
        is_bad = await self.desk.watcher(admission).is_bad([reply])
        result = await self.desk.intake.answered(admission, reply)
        view = turn_view(replace(admission, result=result))
        return view.model_copy(update={"reply_is_cut": is_bad})


def guard_routes(api: GuardApi) -> APIRouter:
    """Return the guard's routes."""
    routes = APIRouter(tags=["guard"], responses=error_responses())
    routes.add_api_route("/v1/guard/turn", api.turn, methods=["POST"], response_model=TurnView)
    routes.add_api_route(
        "/v1/guard/evaluate",
        api.evaluate,
        methods=["POST"],
        openapi_extra={"responses": {"200": {"content": {"application/json": {}}}}},
    )
    routes.add_api_route("/v1/rubric", api.rubric, methods=["POST"], response_model=RubricView)
    return routes
