"""The guard API for callers that talk to the model themselves: turns, prompts, consistency."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from promptguard.computations import offloaded
from promptguard.conversation import Role
from promptguard.evaluation import PromptGuard
from promptguard.evaluators.metrics import metrics_as_json
from promptguard.protocols import ClientHints
from promptguard.queries import plain_id
from promptguard.rubrics.contradiction import judge_contradiction
from promptguard.service.auth import Scope, permitted
from promptguard.service.body import Limits, Reading
from promptguard.service.errors import error_responses
from promptguard.service.intake import Admission, Incoming
from promptguard.service.lanes import computed
from promptguard.service.openai_wire import read_messages
from promptguard.service.replies import ReplyRecorder
from promptguard.service.routes.long_bodies import LongBodyRoute
from promptguard.service.sessions import Owner
from promptguard.service.settings import LiveSettings
from promptguard.service.verdicts import TurnView, turn_view, verdict_headers

MAX_TEXT = 1_000_000
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ClientBody(_Body):
    """How the user typed the message, as measured by the client."""

    typing_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    keystrokes: int | None = Field(default=None, ge=0)


class TurnRequest(_Body):
    """One turn: the new user input, or the whole conversation so far."""

    session_id: str | None = Field(default=None, min_length=1, max_length=512)
    user_input: Text | None = None
    messages: list[dict[str, Any]] | None = Field(default=None, min_length=1)
    system: str | None = Field(default=None, max_length=MAX_TEXT)
    tool_contents: list[Text] = Field(default=[], max_length=512)
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
    """The position that one assistant message takes."""

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
    """Handlers of the guard routes."""

    recorder: ReplyRecorder
    guard: PromptGuard
    live: LiveSettings

    async def turn(self, request: Request, body: TurnRequest, response: Response) -> TurnView:
        """Judge one turn and record it; with `reply`, judge and record the answer as well."""
        principal = permitted(request, Scope.GUARD)
        limits = Limits.of(self.live.current.service, self.recorder.controller.config)
        reading, reply = await computed(_messages_in, body, limits)
        incoming = Incoming(
            owner=Owner(principal=principal),
            messages=tuple(reading.messages),
            contents=tuple(reading.contents),
            system="\n".join(reading.system),
            session_id=None if body.session_id is None else plain_id(body.session_id),
            client=ClientHints(typing_ms=body.client.typing_ms, keystrokes=body.client.keystrokes),
            learns_replies=True,
        )
        admission = await self.recorder.intake.admit(incoming)
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
        judged = await asyncio.to_thread(offloaded, judge_contradiction, body.messages)
        return RubricView(
            contradicts_itself=judged.is_contradiction,
            verdict=judged.verdict.value,
            reason=judged.reason,
            positions=[
                PositionView(index=each.index, position=each.position.value)
                for each in judged.positions
            ],
        )

    async def _view(self, admission: Admission, reply: str | None) -> TurnView:
        history = admission.history.value
        if reply is None or admission.result.is_blocked:
            # The client chooses the words of its refusal, so none are expected to be resent.
            self.recorder.intake.remember(admission, admission.state)
            return turn_view(admission.result, history)
        # The answer is the caller's to show: it is recorded as given, and `reply_is_cut` is advice.
        is_bad = await self.recorder.judge_of(admission).is_bad([reply])
        result = await self.recorder.intake.answered(admission, reply)
        return turn_view(result, history, reply_is_cut=is_bad)


def _messages_in(body: TurnRequest, limits: Limits) -> tuple[Reading, str | None]:
    """Return the conversation, and the answer to its last turn if it is given."""
    reading, reply = Reading(limits=limits), body.reply
    if body.messages is None:
        reading.message(Role.USER, body.user_input or "", ())
    else:
        reading = read_messages(body.messages, limits)
        # A last assistant message is the reply here; in the gateway it would be a prefill.
        last = reading.messages[-1] if reading.messages else None
        if reply is None and last is not None and last.role is Role.ASSISTANT:
            reply = reading.messages.pop().content
    if body.system:
        reading.system.append(body.system)
    for at, text in enumerate(body.tool_contents):
        reading.message(Role.TOOL, text, ("tool_contents", at))
    return reading, reply


def guard_routes(api: GuardApi) -> APIRouter:
    """Return the guard's routes."""
    routes = APIRouter(tags=["guard"], responses=error_responses(), route_class=LongBodyRoute)
    routes.add_api_route("/v1/guard/turn", api.turn, methods=["POST"])
    routes.add_api_route(
        "/v1/guard/evaluate",
        api.evaluate,
        methods=["POST"],
        openapi_extra={"responses": {"200": {"content": {"application/json": {}}}}},
    )
    routes.add_api_route("/v1/rubric", api.rubric, methods=["POST"])
    return routes
