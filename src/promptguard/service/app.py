"""The application: opens the parts that the settings name and assembles them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from opentelemetry.trace import Tracer
from starlette.exceptions import HTTPException

from promptguard import __version__
from promptguard.config import Settings
from promptguard.controller import Controller
from promptguard.errors import PromptGuardError, StoreError
from promptguard.evaluation import PromptGuard
from promptguard.providers import Endpoint, open_endpoint
from promptguard.service.auth import Authenticator, check_host
from promptguard.service.calls import Calls
from promptguard.service.child import Child, OpenJudge, lane_connections
from promptguard.service.decisions import Decisions
from promptguard.service.errors import error_response
from promptguard.service.intake import Intake
from promptguard.service.lanes import LaneExecutor, lane_limits
from promptguard.service.lifecycle import Background, Lifecycle, Retention, load_demo
from promptguard.service.logs import AuditLog, log
from promptguard.service.manual import add_manual, the_manual
from promptguard.service.middleware import RequestMiddleware
from promptguard.service.reference import add_reference
from promptguard.service.replies import ReplyRecorder
from promptguard.service.routes.chat import Gateway, chat_routes
from promptguard.service.routes.check import CheckApi, check_routes
from promptguard.service.routes.embeddings import EmbeddingsApi, embedding_routes
from promptguard.service.routes.guard import GuardApi, guard_routes
from promptguard.service.routes.health import HealthApi, health_routes
from promptguard.service.routes.litellm import LitellmApi, RecentCalls, litellm_routes
from promptguard.service.routes.moderations import ModerationsApi, moderation_routes
from promptguard.service.routes.sessions import SessionsApi, session_routes
from promptguard.service.settings import LiveSettings, Reloader, try_out
from promptguard.service.telemetry import Telemetry, Tracing
from promptguard.service.upstream import Upstream
from promptguard.service.webhooks import Webhooks, WebhookSeams
from promptguard.turns.judge import TurnJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the application is assembled from.

    `read_settings` is called at a reload. `open_judge` opens the judge of a child process; None:
    everything is computed in this one. `clock` is the time of day, `timer` only moves forward.
    """

    settings: Settings
    controller: Controller
    guard: PromptGuard
    endpoint: Endpoint
    read_settings: Callable[[], Settings]
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    tracer: Tracer | None = None
    webhook_seams: WebhookSeams | None = None
    open_judge: OpenJudge | None = None


def open_parts(settings: Settings, read_settings: Callable[[], Settings]) -> Parts:
    """Open everything that the settings name; raises where something cannot be opened."""
    service = settings.service
    check_host(service.host, service.keys)
    endpoint = settings.conversation.endpoint.model_copy(
        # A client of the gateway waits longer for its model than a judge may take.
        update={"timeout_s": service.upstream_timeout_s}
    )
    controller = Controller(settings.conversation)
    # Loads the readers now, so that the first turn does not wait for them.
    try_out(controller.judge)
    return Parts(
        settings=settings,
        controller=controller,
        guard=PromptGuard(settings.evaluation),
        endpoint=open_endpoint(service.upstream, endpoint, key_env=service.upstream_key_env),
        read_settings=read_settings,
        open_judge=TurnJudge.open,
    )


class Service:
    """One assembled service; `app` is the ASGI application."""

    def __init__(self, parts: Parts) -> None:
        service = parts.settings.service
        self.live = LiveSettings(parts.settings)
        self.telemetry = Telemetry(tracing=Tracing(parts.tracer))
        self.lanes = LaneExecutor(lane_limits(service))
        self.child = _child_of(parts)
        self.calls = Calls(live=self.live, lanes=self.lanes, child=self.child)
        seams = parts.webhook_seams
        self.webhooks = Webhooks(service.webhooks, self.telemetry, env=parts.env, seams=seams)
        if service.webhooks:
            self.telemetry.on_turn(self.webhooks.turn)
        # Rates are measured by the clock that only moves forward.
        self.authenticator = Authenticator(service.keys, clock=parts.timer)
        labelled = self.webhooks.labelled
        self.audit = AuditLog(service.audit_file, clock=parts.clock, on_label=labelled)
        self.background = Background()
        self.decisions = Decisions(parts.controller, self.audit, clock=parts.clock)
        self.intake = Intake(parts.controller, self.telemetry, self.live, clock=parts.clock)
        self.recorder = ReplyRecorder(
            controller=parts.controller,
            intake=self.intake,
            telemetry=self.telemetry,
            background=self.background,
        )
        self.upstream = Upstream(
            parts.endpoint,
            self.telemetry,
            env=parts.env,
            stream_s=service.stream_timeout_s,
            timer=parts.timer,
        )
        self.reloader = Reloader(
            self.live,
            parts.read_settings,
            controller=parts.controller,
            authenticator=self.authenticator,
            telemetry=self.telemetry,
            audit=self.audit,
            overlay=self.decisions.overlaid,
        )
        # Set afterwards: the reloader is made with the decisions' overlay.
        self.decisions.reapply = self.reloader.reapply
        self.lifecycle = self._lifecycle(parts)
        self.app = self._assembled(parts)

    def _lifecycle(self, parts: Parts) -> Lifecycle:
        service, controller, child = parts.settings.service, parts.controller, self.child
        retention = Retention(controller=controller, telemetry=self.telemetry, clock=parts.clock)
        demo = partial(load_demo, controller, clock=parts.clock)
        return Lifecycle(
            background=self.background,
            lanes=self.lanes,
            shutdown_s=service.shutdown_s,
            # Before the first turn: what operators decided must hold from the start.
            starters=(*((child.start,) if child else ()), self.decisions.refresh),
            jobs=(
                retention.run,
                self.webhooks.run,
                self.decisions.follow,
                *((demo,) if service.demo else ()),
            ),
            # The controller's store comes last: what ends before it may still write.
            closers=(
                self.upstream.close,
                parts.guard.close,
                *((child.close,) if child else ()),
                controller.close,
            ),
        )

    def _assembled(self, parts: Parts) -> FastAPI:
        app = FastAPI(
            title="promptguard",
            version=__version__,
            # FastAPI's pages fetch scripts from another host; `reference` serves our own.
            docs_url=None,
            redoc_url=None,
            lifespan=self._lifespan,
        )
        app.add_middleware(
            RequestMiddleware,
            authenticator=self.authenticator,
            telemetry=self.telemetry,
            calls=self.calls,
        )
        for kind in (RequestValidationError, PromptGuardError, HTTPException):
            app.add_exception_handler(kind, _on_error)
        self._add_routes(app, parts)
        manual = the_manual()
        if manual is not None:
            add_manual(app, manual)
        add_reference(app, has_manual=manual is not None)
        if parts.settings.service.dashboard:
            # Imported on use: the dashboard brings NiceGUI, which is large.
            from promptguard.service.dashboard import mount_dashboard

            mount_dashboard(
                app, parts.controller, self.live, self.audit, self.decisions, self.calls
            )
        return app

    def _add_routes(self, app: FastAPI, parts: Parts) -> None:
        controller, recorder, live = parts.controller, self.recorder, self.live
        telemetry, lifecycle, clock = self.telemetry, self.lifecycle, parts.clock
        gateway = Gateway(
            recorder=recorder, upstream=self.upstream, live=live, authenticator=self.authenticator
        )
        sessions = SessionsApi(
            controller=controller, intake=self.intake, audit=self.audit, clock=clock
        )
        health = HealthApi(controller=controller, telemetry=telemetry, lifecycle=lifecycle)
        for routes in (
            chat_routes(gateway),
            guard_routes(GuardApi(recorder=recorder, guard=parts.guard, live=live)),
            moderation_routes(ModerationsApi(controller=controller, clock=clock)),
            litellm_routes(LitellmApi(recorder=recorder, live=live, calls=RecentCalls())),
            embedding_routes(EmbeddingsApi(gateway=gateway)),
            check_routes(CheckApi(recorder=recorder, live=live)),
            session_routes(sessions),
            health_routes(health),
        ):
            app.include_router(routes)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with self.lifecycle.run():
            yield


def _child_of(parts: Parts) -> Child | None:
    connections = lane_connections(parts.settings.service)
    if parts.open_judge is None or not connections:
        return None
    return Child(parts.open_judge, parts.controller.judge, connections)


async def _on_error(_: Request, error: Exception) -> JSONResponse:
    if type(error) is StoreError:  # its subclasses are outcomes, such as an unknown session
        log(logging.ERROR, "store failed", error=error, reason=str(error))
    return error_response(error)
