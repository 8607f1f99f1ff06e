"""Liveness, readiness and metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from promptguard.controller import Controller
from promptguard.errors import PromptGuardError
from promptguard.service.auth import Scope, permitted
from promptguard.service.errors import error_responses
from promptguard.service.lifecycle import Lifecycle
from promptguard.service.telemetry import Telemetry

_STORE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthApi:
    """Handlers of the health routes."""

    controller: Controller
    telemetry: Telemetry
    lifecycle: Lifecycle

    async def alive(self) -> dict[str, str]:
        """Return 200 while the process runs."""
        return {"status": "ok"}

    async def ready(self) -> Response:
        """Return 200 while turns can be judged and recorded, else 503 and what is missing."""
        reason = await self._reason_not_ready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, status_code=503)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics for Prometheus."""
        permitted(request, Scope.READ)
        return self.telemetry.exposition()

    async def _reason_not_ready(self) -> str | None:
        if self.lifecycle.is_stopping:
            return "shutting down"
        if not self.lifecycle.is_started:
            return "starting"
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                await self.controller.store.check_writable()
        except (PromptGuardError, TimeoutError):
            # The store's own words name its file or host, and probes need no key.
            return "the store cannot be written"
        return None


def health_routes(api: HealthApi) -> APIRouter:
    """Return the routes for probes and scrapers."""
    routes = APIRouter(tags=["health"])
    routes.add_api_route("/healthz", api.alive, methods=["GET"])
    routes.add_api_route(
        "/readyz",
        api.ready,
        methods=["GET"],
        responses={503: {"description": "Not ready, and why"}},
    )
    routes.add_api_route(
        "/metrics",
        api.metrics,
        methods=["GET"],
        response_class=Response,
        responses={**error_responses(), 200: {"content": {"text/plain": {}}}},
    )
    return routes
