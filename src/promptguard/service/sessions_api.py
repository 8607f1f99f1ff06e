"""Stored sessions: list, look, explain, replay, label, forget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from promptguard.config import ControllerConfig, PolicyConfig
from promptguard.controller import Controller
from promptguard.errors import ConfigError, PromptGuardError, SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel, SessionQuery
from promptguard.service.audit import AuditLog
from promptguard.service.auth import Principal, Scope
from promptguard.service.faults import Fault
from promptguard.service.intake import Intake
from promptguard.service.openapi import error_responses
from promptguard.service.request_info import permitted
from promptguard.service.session_views import (
    Deleted,
    ExplanationView,
    LabelView,
    ReplayView,
    SessionDetail,
    SessionList,
    detail_of,
    explanation_of,
    label_of,
    replay_of,
    summary_of,
)
from promptguard.state import Mode, SessionState

ModeName = Literal["SAFE", "CAUTIOUS", "ELEVATED", "SUSPECT", "CRITICAL", "UNSAFE"]
SessionId = Annotated[str, Path(min_length=1, max_length=512)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LabelRequest(_Body):
    """A person's verdict on a session."""

    verdict: Literal["attack", "false_alarm"]
    note: str = Field(default="", max_length=2000)


class PolicyBody(_Body):
    """The lowest mode at which each action starts; null: never."""

    annotate_from: ModeName | None = "CAUTIOUS"
    steer_from: ModeName | None = "ELEVATED"
    review_from: ModeName | None = None
    block_from: ModeName | None = "CRITICAL"


class ReplayRequest(_Body):
    """The settings to replay with; what is not given stays as it is.

    Settings that name files or endpoints cannot be given here.
    """

    preset: Literal["strict", "balanced", "permissive"] | None = None
    false_positive_budget: float | None = Field(default=None, gt=0, le=0.5)
    policy: PolicyBody | None = None
    persona: Literal["strict", "empathetic", "educational", "professional", "friendly"] | None = (
        None
    )
    use_temporal: bool | None = None
    signals: list[str] | None = Field(default=None, max_length=64)

    def over(self, config: ControllerConfig) -> ControllerConfig:
        """Return `config` with these settings in place of its own."""
        given = self.model_dump(exclude_none=True, exclude={"policy", "signals"})
        if self.policy is not None:
            given["policy"] = PolicyConfig(**self.policy.model_dump())
        if self.signals is not None:
            given["signals"] = tuple(self.signals)
        return ControllerConfig(**{**dict(iter(config)), **given})


class ListQuery(_Body):
    """Which sessions."""

    min_mode: ModeName = "SAFE"
    contains: str = Field(default="", max_length=128, pattern=r"^[A-Za-z0-9._:@=+-]*$")
    limit: int = Field(default=50, ge=1, le=500)
    offset: int = Field(default=0, ge=0, le=1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsApi:
    """The routes' work. Callers see the sessions of their tenant and no others."""

    controller: Controller
    intake: Intake
    audit: AuditLog
    clock: Callable[[], float]

    async def index(self, request: Request, query: Annotated[ListQuery, Query()]) -> SessionList:
        """List sessions, newest first."""
        caller = permitted(request, Scope.READ)
        found = await self.controller.store.sessions(
            SessionQuery(
                tenant=caller.tenant,
                min_mode=Mode[query.min_mode],
                contains=query.contains,
                limit=query.limit,
                offset=query.offset,
            )
        )
        return SessionList(sessions=[summary_of(state) for state in found])

    async def show(self, request: Request, session_id: SessionId) -> SessionDetail:
        """Show a session with its transcript, evidence and labels."""
        caller = permitted(request, Scope.READ)
        state, key = await self._found(caller, session_id)
        store = self.controller.store
        return detail_of(state, await store.transcript(key), await store.labels(key))

    async def explain(self, request: Request, session_id: SessionId) -> ExplanationView:
        """Say why the last turn got its verdict, and without which turns it would have passed."""
        caller = permitted(request, Scope.READ)
        _, key = await self._found(caller, session_id)
        found = await self.controller.explain(key.session_id, tenant=key.tenant)
        return explanation_of(key.session_id, found)

    async def replay(
        self, request: Request, session_id: SessionId, body: ReplayRequest
    ) -> ReplayView:
        """Judge a stored session under other settings, turn by turn."""
        caller = permitted(request, Scope.READ)
        _, key = await self._found(caller, session_id)
        try:
            other = body.over(self.controller.config)
            pairs = await self.controller.replay(key.session_id, other, tenant=key.tenant)
        except ConfigError as error:
            raise Fault(422, str(error), code="invalid_field", param="body") from None
        return replay_of(key.session_id, pairs)

    async def delete(self, request: Request, session_id: SessionId) -> Deleted:
        """Forget a session wholly: state, transcript, labels."""
        caller = permitted(request, Scope.ADMIN)
        try:
            _, key = await self._found(caller, session_id)
            deleted = await self.controller.store.delete(key)
        except PromptGuardError as error:
            self.audit.record(caller.name, "delete", session_id, type(error).__name__)
            raise
        self.intake.links.forget(key)
        self.audit.record(caller.name, "delete", key.session_id, "done")
        return Deleted(session_id=key.session_id, deleted=deleted)

    async def label(self, request: Request, session_id: SessionId, body: LabelRequest) -> LabelView:
        """Record that a session was a true attack or a false alarm."""
        caller = permitted(request, Scope.ADMIN)
        label = SessionLabel(
            verdict=body.verdict,
            author=caller.name or "local",
            timestamp=self.clock(),
            note=body.note,
        )
        try:
            _, key = await self._found(caller, session_id)
            await self.controller.store.put_label(key, label)
        except PromptGuardError as error:
            self.audit.record(caller.name, "label", session_id, type(error).__name__)
            raise
        self.audit.record(caller.name, "label", key.session_id, body.verdict)
        return label_of(label)

    async def _found(self, caller: Principal, session_id: str) -> tuple[SessionState, SessionKey]:
        """Return a session by its stored id, or by the id the caller's own key gave it."""
        names = [session_id]
        if caller.name:
            names.append(f"{caller.name}:{session_id}"[:512])
        for name in names:
            key = SessionKey(session_id=name, tenant=caller.tenant)
            if (state := await self.controller.store.load(key)) is not None:
                return state, key
        raise SessionNotFound("There is no such session; GET /v1/sessions lists them.")


def session_routes(api: SessionsApi) -> APIRouter:
    """Return the routes over stored sessions."""
    routes = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=error_responses())
    routes.add_api_route("", api.index, methods=["GET"], response_model=SessionList)
    one = "/{session_id}"
    routes.add_api_route(one, api.show, methods=["GET"], response_model=SessionDetail)
    routes.add_api_route(one, api.delete, methods=["DELETE"], response_model=Deleted)
    routes.add_api_route(
        f"{one}/explain", api.explain, methods=["GET"], response_model=ExplanationView
    )
    routes.add_api_route(f"{one}/replay", api.replay, methods=["POST"], response_model=ReplayView)
    routes.add_api_route(f"{one}/label", api.label, methods=["POST"], response_model=LabelView)
    return routes
