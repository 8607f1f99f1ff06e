"""A whole service around a fake model and a stand-in upstream."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from stub_upstream import StubUpstream

from promptguard.config import ControllerConfig, EndpointConfig, ServiceConfig, Settings
from promptguard.controller import Controller
from promptguard.evaluation import PromptGuard
from promptguard.fil.engine import FrozenInstinct
from promptguard.patterns.wordlist import shipped_concepts
from promptguard.protocols import SessionKey, SessionQuery
from promptguard.providers import EndpointSeams, open_endpoint
from promptguard.risk.weights import PRESETS, load_weights
from promptguard.service.app import Parts, Service
from promptguard.signals import load_signals
from promptguard.stores import open_store
from promptguard.testing import FakeEncoder, ManualClock
from promptguard.turns.contents import ContentJudge
from promptguard.turns.judge import TurnJudge

UPSTREAM = "http://upstream.test/v1"
WEIGHTS = Path(__file__).with_name("weights.toml")


@cache
def english_rules() -> FrozenInstinct:
    return FrozenInstinct.load(["en"])


def fast_judge(config: ControllerConfig) -> TurnJudge:
    """The real judge over the fake model, with one language's rules read once."""
    weights = load_weights(WEIGHTS)
    priors = weights.priors_for(config.false_positive_budget or PRESETS[config.preset])
    encoder = FakeEncoder()
    return TurnJudge(
        config=config,
        encoder=encoder,
        instinct=english_rules(),
        concepts=shipped_concepts(),
        weights=weights,
        priors=priors,
        # Signals that these tests' weights do not know are tested elsewhere.
        signals=tuple(pair for pair in load_signals() if pair[0] in weights.signals),
        contents=ContentJudge(
            encoder=encoder,
            instinct=english_rules(),
            weights=weights,
            prior=priors.document,
            policy=config.policy,
        ),
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
        return await self.controller.store.load(SessionKey(session_id=session_id, tenant=tenant))

    async def only_state(self):
        """The state of the one session there is."""
        (state,) = await self.controller.store.sessions(SessionQuery(tenant=None))
        return state

    async def verdicts(self, session_id: str) -> list[dict[str, Any]]:
        """What was decided on each turn of a session."""
        entries = await self.controller.store.transcript(SessionKey(session_id=session_id))
        return [json.loads(entry.verdict) for entry in entries if entry.verdict]


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
    **further: Any,
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
        **{"env": {}, **further},
    )
