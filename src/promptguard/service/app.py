"""The application: it only puts together what it is given."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from promptguard.config import ServiceConfig
from promptguard.errors import PromptGuardError
from promptguard.service.audit import AuditLog
from promptguard.service.auth import Authenticator
from promptguard.service.background import Background
from promptguard.service.demo import load_demo
from promptguard.service.faults import error_response, fault_of, invalid_fields
from promptguard.service.gateway import Gateway, gateway_routes
from promptguard.service.guard_api import GuardApi, guard_routes
from promptguard.service.health_api import HealthApi, health_routes
from promptguard.service.intake import Intake, IntakeLimits
from promptguard.service.lifecycle import Lifecycle
from promptguard.service.limits import Gate, GateLimits
from promptguard.service.litellm_api import LitellmApi, litellm_routes
from promptguard.service.moderations_api import ModerationsApi, moderation_routes
from promptguard.service.opening import Parts
from promptguard.service.recent_calls import RecentCalls
from promptguard.service.reload import LiveSettings, Reloader
from promptguard.service.replies import ReplyDesk
from promptguard.service.retention import Retention
from promptguard.service.sessions_api import SessionsApi, session_routes
from promptguard.service.telemetry import Telemetry
from promptguard.service.upstream import Upstream

DASHBOARD = "promptguard.service.dashboard"


class Service:
    """One assembled service; `app` is what a server runs."""

    def __init__(self, parts: Parts) -> None:
        self.live = LiveSettings(parts.settings)
        self.telemetry = Telemetry()
        self.authenticator = Authenticator(parts.settings.service.keys, clock=parts.timer)
        self.audit = AuditLog(parts.settings.service.audit_file, clock=parts.clock)
        self.background = Background()
        self.intake = Intake(
            parts.controller, self.telemetry, self._intake_limits, clock=parts.clock
        )
        self.desk = ReplyDesk(
            controller=parts.controller,
            intake=self.intake,
            telemetry=self.telemetry,
            background=self.background,
        )
        self.upstream = Upstream(parts.endpoint, self.telemetry, env=parts.env)
        self.reloader = Reloader(
            self.live,
            parts.read_settings,
            controller=parts.controller,
            authenticator=self.authenticator,
            telemetry=self.telemetry,
            audit=self.audit,
        )
        self.lifecycle = self._lifecycle(parts)
        self.app = self._assembled(parts)

    def _lifecycle(self, parts: Parts) -> Lifecycle:
        service = parts.settings.service
        demo = partial(load_demo, parts.controller, clock=parts.clock)
        retention = Retention(
            controller=parts.controller, telemetry=self.telemetry, clock=parts.clock
        )
        return Lifecycle(
            background=self.background,
            threads=service.threads,
            shutdown_s=service.shutdown_s,
            jobs=(retention.run, *((demo,) if service.demo else ())),
            closers=(self.upstream.close, parts.guard.close, parts.controller.close),
        )

    def _assembled(self, parts: Parts) -> FastAPI:
        app = FastAPI(
            title="promptguard",
            version=version("promptguard"),
            docs_url=None,
            redoc_url=None,
            lifespan=self._lifespan,
        )
        app.state.promptguard = self
        app.add_middleware(
            Gate,
            authenticator=self.authenticator,
            telemetry=self.telemetry,
            limits=self._gate_limits,
        )
        app.add_exception_handler(RequestValidationError, _on_invalid)
        app.add_exception_handler(PromptGuardError, _on_error)
        app.add_exception_handler(HTTPException, _on_fault)
        self._add_routes(app, parts)
        if parts.settings.service.dashboard:
            _mount_dashboard(app, parts)
        return app

    def _add_routes(self, app: FastAPI, parts: Parts) -> None:
        controller = parts.controller

        def service() -> ServiceConfig:
            return self.live.service

        gateway = Gateway(
            desk=self.desk,
            upstream=self.upstream,
            service=service,
            has_keys=lambda: self.authenticator.has_keys,
        )
        guard = GuardApi(desk=self.desk, guard=parts.guard, service=service)
        litellm = LitellmApi(desk=self.desk, service=service, calls=RecentCalls())
        sessions = SessionsApi(
            controller=controller, intake=self.intake, audit=self.audit, clock=parts.clock
        )
        health = HealthApi(
            controller=controller, telemetry=self.telemetry, lifecycle=self.lifecycle
        )
        for routes in (
            gateway_routes(gateway),
            guard_routes(guard),
            moderation_routes(ModerationsApi(controller=controller, clock=parts.clock)),
            litellm_routes(litellm),
            session_routes(sessions),
            health_routes(health),
        ):
            app.include_router(routes)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        async with self.lifecycle.run():
            yield

    def _intake_limits(self) -> IntakeLimits:
        service = self.live.service
        return IntakeLimits(
            max_turns=service.max_turns, hides_refusals=service.block_style == "error"
        )

    def _gate_limits(self) -> GateLimits:
        service = self.live.service
        return GateLimits(
            max_body_bytes=service.max_body_bytes, client_timeout_s=service.client_timeout_s
        )


def create_app(parts: Parts) -> FastAPI:
    """Return the application made of `parts`."""
    return Service(parts).app


def _mount_dashboard(app: FastAPI, parts: Parts) -> None:
    if importlib.util.find_spec(DASHBOARD) is None:
        return
    dashboard = importlib.import_module(DASHBOARD)
    dashboard.mount_dashboard(app, parts.controller, parts.settings)


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return error_response(invalid_fields(error))


async def _on_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PromptGuardError)
    return error_response(fault_of(error))


async def _on_fault(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return error_response(error)
