"""Stored sessions: list, show, explain, replay, label, release, delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from promptguard.config import ControllerConfig, PolicyConfig
from promptguard.controller import Controller
from promptguard.conversation import without_lone_surrogates
from promptguard.errors import ConfigError, PromptGuardError, SessionNotFound
from promptguard.protocols import SessionKey, SessionLabel, SessionQuery
from promptguard.queries import plain_id
from promptguard.service.auth import Principal, Scope, permitted, principal_of
from promptguard.service.errors import ApiError, error_responses
from promptguard.service.intake import Intake
from promptguard.service.lanes import computed_over
from promptguard.service.logs import AuditLog
from promptguard.service.verdicts import (
    EnteredView,
    ExplanationView,
    ReplayView,
    explanation_view,
    replay_view,
    stored_verdict,
)
from promptguard.state import SessionState, TranscriptEntry
from promptguard.verdict import Mode, ModeName, Verdict

Start = Literal["SAFE", "CAUTIOUS", "ELEVATED", "SUSPECT", "CRITICAL", "UNSAFE"]
SessionId = Annotated[str, Path(min_length=1, max_length=512)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LabelRequest(_Body):
    """A person's verdict on a session."""

    verdict: Literal["attack", "false_alarm"]
    note: str = Field(default="", max_length=2000)


class ReleaseRequest(_Body):
    """How a session is released."""

    forgive: bool = False


class PolicyBody(_Body):
    """The lowest mode at which each action starts; null: never."""

    annotate_from: Start | None = "CAUTIOUS"
    steer_from: Start | None = "ELEVATED"
    review_from: Start | None = None
    block_from: Start | None = "CRITICAL"
    content_from: Start | None = "CRITICAL"
    definitions_by: Literal["rules", "readers", "nobody"] = "rules"
    content_action: Literal["strip", "block", "review", "annotate"] = "strip"
    lock_after_blocks: int | None = Field(default=None, ge=1)
    lock_on_hard: bool = False


class ReplayRequest(_Body):
    """The settings to replay with; what is not given stays as it is.

    A preset stands for its own budget in place of a configured one. Settings that name files or
    endpoints cannot be given here.
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
        if self.preset is not None:
            # A budget overrides a preset, which would change nothing beside a configured one.
            given.setdefault("false_positive_budget", None)
        if self.policy is not None:
            given["policy"] = PolicyConfig(**self.policy.model_dump())
        if self.signals is not None:
            given["signals"] = tuple(self.signals)
        # Built anew rather than copied, so that the given settings are validated together.
        return ControllerConfig(**{**dict(iter(config)), **given})


class ListQuery(_Body):
    """Which sessions."""

    min_mode: Start = "SAFE"
    contains: str = Field(default="", max_length=128)
    limit: int = Field(default=50, ge=1, le=500)
    offset: int = Field(default=0, ge=0, le=1_000_000)


class SessionSummary(BaseModel):
    """A session in one row."""

    session_id: str
    tenant: str
    mode: ModeName
    accumulated_risk: float
    peak_risk: float
    is_locked: bool
    turns: int
    blocked: int
    stripped: int
    history_rewrites: int
    created: float
    updated: float


class SessionList(BaseModel):
    """One page of sessions, newest first."""

    sessions: list[SessionSummary]


class EntryView(BaseModel):
    """One stored message; `content` is null where text is not kept.

    The message that begins a turn carries the verdict on it.
    """

    position: int
    turn: int
    role: str
    content: str | None
    timestamp: float
    verdict: Verdict | None = None


class LabelView(BaseModel):
    """A reviewer's label on a session."""

    verdict: str
    author: str
    timestamp: float
    note: str


class SessionDetail(BaseModel):
    """A session with its transcript, verdicts and labels."""

    summary: SessionSummary
    entered: list[EnteredView]
    transcript: list[EntryView]
    labels: list[LabelView]


class Deleted(BaseModel):
    """Result of DELETE."""

    session_id: str
    deleted: bool


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
        states = await self.controller.store.sessions(
            SessionQuery(
                tenant=caller.tenant,
                min_mode=Mode[query.min_mode],
                contains=query.contains,
                limit=query.limit,
                offset=query.offset,
            )
        )
        return SessionList(sessions=[_summary(state) for state in states])

    async def show(self, request: Request, session_id: SessionId) -> Response:
        """Show a session with its transcript, evidence and labels."""
        caller = permitted(request, Scope.READ)
        state, key = await self._found(caller, session_id)
        store = self.controller.store
        entries, labels = await store.transcript(key), await store.labels(key)
        body = await computed_over(len(entries), _detail_json, state, entries, labels)
        # Written off the event loop already; FastAPI would validate and write it once more.
        return Response(body, media_type="application/json")

    async def explain(self, request: Request, session_id: SessionId) -> ExplanationView:
        """Say why the last turn got its verdict, and without which turns it would have passed."""
        caller = permitted(request, Scope.READ)
        _, key = await self._found(caller, session_id)
        explanation = await self.controller.explain(key.session_id, tenant=key.tenant)
        return explanation_view(key.session_id, explanation)

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
            raise ApiError(422, str(error), code="invalid_field", param="body") from None
        return replay_view(key.session_id, pairs)

    async def delete(self, request: Request, session_id: SessionId) -> Deleted:
        """Delete a session: state, transcript and labels."""
        caller, key = await self._administered(request, "delete", session_id)
        with self.audit.action(caller.name, "delete", key.session_id, tenant=key.tenant):
            deleted = await self.controller.store.delete(key)
        self.intake.forget(key)
        return Deleted(session_id=key.session_id, deleted=deleted)

    async def label(self, request: Request, session_id: SessionId, body: LabelRequest) -> LabelView:
        """Record that a session was a true attack, or a false alarm, which also releases it."""
        caller, key = await self._administered(request, "label", session_id)
        label = SessionLabel(
            verdict=body.verdict,
            author=caller.name or "local",
            timestamp=self.clock(),
            note=body.note,
        )
        with self.audit.action(
            caller.name, "label", key.session_id, done=body.verdict, tenant=key.tenant
        ):
            await self.controller.put_label(key.session_id, label, tenant=key.tenant)
        return _label_view(label)

    async def release(
        self, request: Request, session_id: SessionId, body: ReleaseRequest | None = None
    ) -> SessionSummary:
        """Unlock a session; with `forgive`, what it has shown no longer counts."""
        caller, key = await self._administered(request, "release", session_id)
        forgive = body is not None and body.forgive
        with self.audit.action(caller.name, "release", key.session_id, tenant=key.tenant):
            state = await self.controller.release(
                key.session_id, tenant=key.tenant, forgive=forgive
            )
        return _summary(state)

    async def _administered(
        self, request: Request, action: str, session_id: str
    ) -> tuple[Principal, SessionKey]:
        """Return the caller and the session to act on; refusals are recorded too."""
        caller = principal_of(request)
        try:
            caller.require(Scope.ADMIN)
            _, key = await self._found(caller, session_id)
        except (ApiError, PromptGuardError) as error:
            outcome = error.code if isinstance(error, ApiError) else type(error).__name__
            # Who tried what they may not is on record too.
            self.audit.record(caller.name, action, session_id, outcome, tenant=caller.tenant)
            raise
        return caller, key

    async def _found(self, caller: Principal, session_id: str) -> tuple[SessionState, SessionKey]:
        """Return a session by its stored id, or by the id the caller's own key gave it."""
        names = [session_id, plain_id(session_id)]
        if caller.name:
            names += [f"{caller.name}:{name}"[:512] for name in names]
        for name in dict.fromkeys(names):
            key = SessionKey(session_id=name, tenant=caller.tenant)
            if (state := await self.controller.store.load(key)) is not None:
                return state, key
        raise SessionNotFound("There is no such session; GET /v1/sessions lists them.")


def session_routes(api: SessionsApi) -> APIRouter:
    """Return the routes over stored sessions."""
    routes = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=error_responses())
    one = "/{session_id}"
    routes.add_api_route("", api.index, methods=["GET"])
    routes.add_api_route(one, api.show, methods=["GET"], response_model=SessionDetail)
    routes.add_api_route(one, api.delete, methods=["DELETE"])
    routes.add_api_route(f"{one}/explain", api.explain, methods=["GET"])
    routes.add_api_route(f"{one}/replay", api.replay, methods=["POST"])
    routes.add_api_route(f"{one}/label", api.label, methods=["POST"])
    routes.add_api_route(f"{one}/release", api.release, methods=["POST"])
    return routes


def _summary(state: SessionState) -> SessionSummary:
    """Return a session in one row."""
    return SessionSummary(
        session_id=state.session_id,
        tenant=state.tenant,
        mode=state.mode,
        accumulated_risk=state.accumulated_risk,
        peak_risk=state.profile.peak_risk,
        is_locked=state.lock is not None,
        turns=state.turn_count,
        blocked=state.profile.blocked,
        stripped=state.profile.stripped,
        history_rewrites=state.history_rewrites,
        created=state.created,
        updated=state.updated,
    )


def _detail_json(
    state: SessionState, entries: tuple[TranscriptEntry, ...], labels: tuple[SessionLabel, ...]
) -> str:
    """Return a session with all that is stored of it."""
    detail = SessionDetail(
        summary=_summary(state),
        entered=[EnteredView(turn=entry.turn, mode=entry.mode) for entry in state.entered],
        transcript=[
            EntryView(
                position=entry.position,
                turn=entry.turn,
                role=entry.role.value,
                content=None if entry.content is None else without_lone_surrogates(entry.content),
                timestamp=entry.timestamp,
                verdict=stored_verdict(entry),
            )
            for entry in entries
        ],
        labels=[_label_view(label) for label in labels],
    )
    return detail.model_dump_json()


def _label_view(label: SessionLabel) -> LabelView:
    """Return the public form of a label."""
    return LabelView(
        verdict=label.verdict,
        author=label.author,
        timestamp=label.timestamp,
        note=without_lone_surrogates(label.note),
    )
