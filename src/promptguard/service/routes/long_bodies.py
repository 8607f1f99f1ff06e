"""Routes whose long bodies are parsed where long requests are computed, not on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from promptguard.service.body import strict_json
from promptguard.service.lanes import computed


class _LongBodyRequest(Request):
    # FastAPI reads bodies by this method, so they are read as strictly as in the gateway.
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = await computed(strict_json, await self.body())
        return self._json


class LongBodyRoute(APIRoute):
    """FastAPI's route, which would parse a body of megabytes while everybody waits."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            return await handle(_LongBodyRequest(request.scope, request.receive))

        return handled
