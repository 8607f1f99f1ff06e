"""A whole service around a fake model and a stand-in upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import pytest
from stub_upstream import StubUpstream

from promptguard.config import ControllerConfig, EndpointConfig, ServiceConfig, Settings
from promptguard.controller import Controller
from promptguard.fil.engine import FrozenInstinct
from promptguard.guard import PromptGuard
from promptguard.providers import EndpointSeams, open_endpoint
from promptguard.service.app import Service
from promptguard.service.opening import Parts
from promptguard.stores import open_store
from promptguard.testing import FakeEncoder, ManualClock
from promptguard.turns.judge import TurnJudge

UPSTREAM = "http://upstream.test/v1"


@cache
def english_rules() -> FrozenInstinct:
    return FrozenInstinct.load(["en"])


def fast_judge(config: ControllerConfig) -> TurnJudge:
    """The real judge over the fake model, with one language's rules read once."""
    opened = TurnJudge.open(config, encoder=FakeEncoder())
    return TurnJudge(
        config=opened.config,
        encoder=opened.encoder,
        instinct=english_rules(),
        weights=opened.weights,
        prior=opened.prior,
        signals=opened.signals,
    )


@dataclass
class Guarded:
    """A service under test and what surrounds it."""

    service: Service
    client: httpx.AsyncClient
    upstream: StubUpstream
    controller: Controller
    clock: ManualClock
    settings: Settings

    async def chat(self, *said: Any, headers: dict[str, str] | None = None, **fields: Any):
        """Send a chat completion; a bare text is a user message."""
        messages = [{"role": "user", "content": s} if isinstance(s, str) else s for s in said]
        body = {"model": "stub-model", "messages": messages, **fields}
        return await self.client.post("/v1/chat/completions", json=body, headers=headers)

    async def state(self, session_id: str, tenant: str = "default"):
        from promptguard.protocols import SessionKey

        return await self.controller.store.load(SessionKey(session_id=session_id, tenant=tenant))

    async def only_state(self):
        """The state of the one session there is."""
        from promptguard.protocols import SessionQuery

        (state,) = await self.controller.store.sessions(SessionQuery(tenant=None))
        return state


def assistant(text: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def make_parts(
    upstream: StubUpstream,
    *,
    clock: ManualClock,
    service: dict[str, Any] | None = None,
    conversation: dict[str, Any] | None = None,
    store: Any = None,
    guard: PromptGuard | None = None,
    read_settings: Callable[[], Settings] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Parts:
    settings = Settings(
        conversation=ControllerConfig(**{"store": "memory:", **(conversation or {})}),
        service=ServiceConfig(**{"demo": False, "dashboard": False, **(service or {})}),
    )
    config = settings.conversation
    endpoint = open_endpoint(
        UPSTREAM,
        EndpointConfig(timeout_s=5.0, retries=1, breaker_failures=4),
        seams=EndpointSeams(
            env={},
            transport=transport or httpx.ASGITransport(upstream.app),
            sleep=clock.sleep,
            clock=clock,
        ),
    )
    return Parts(
        settings=settings,
        controller=Controller(
            config, store=store or open_store(config.store), judge=fast_judge(config), clock=clock
        ),
        guard=guard or PromptGuard(settings.evaluation),
        endpoint=endpoint,
        read_settings=read_settings or (lambda: settings),
        clock=clock,
        timer=clock,
        env={},
    )


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
