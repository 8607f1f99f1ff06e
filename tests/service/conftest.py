"""Fixtures: a whole service around a fake model and a stand-in upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from guarded_service import Guarded, make_parts
from stub_upstream import StubUpstream

from promptguard.service.app import Service
from promptguard.testing import ManualClock


@pytest.fixture
async def guarded() -> AsyncIterator[Callable[..., Any]]:
    """Returns a function that starts a service; everything is stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Guarded:
            upstream = options.pop("upstream", None) or StubUpstream()
            clock = options.pop("clock", None) or ManualClock()
            peer = options.pop("peer", "127.0.0.1")
            parts = make_parts(upstream, clock=clock, **options)
            service = Service(parts)
            await stack.enter_async_context(service.lifecycle.run())
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(service.app, client=(peer, 1)),
                base_url="http://127.0.0.1",
                timeout=20,
            )
            await stack.enter_async_context(client)
            return Guarded(
                service=service,
                client=client,
                upstream=upstream,
                controller=parts.controller,
                clock=clock,
                settings=parts.settings,
            )

        yield start
