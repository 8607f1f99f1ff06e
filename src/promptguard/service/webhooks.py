"""Webhooks: events sent to the addresses of the configuration, signed and retried.

An event holds ids, actions and numbers, never message text. Addresses come from the configuration
only, redirects are not followed, and plain HTTP goes to loopback alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

import httpx

from promptguard.config import WebhookConfig
from promptguard.errors import ConfigError
from promptguard.providers.endpoint import delay_s, is_retryable
from promptguard.service.auth import is_loopback
from promptguard.service.logs import log
from promptguard.service.telemetry import Telemetry
from promptguard.turns.result import TurnResult

SIGNATURE = "x-promptguard-signature"
EVENT_ID = "x-promptguard-event"
MAX_QUEUED = 1000
MAX_ATTEMPTS = 6
TIMEOUT_S = 10.0
EventKind = Literal["block", "strip", "lock", "label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened in a session. `detail` is a reviewer's label, or empty."""

    kind: EventKind
    session_id: str
    tenant: str
    at: float
    turn: int = 0
    action: str = ""
    turn_risk: float = 0.0
    accumulated_risk: float = 0.0
    is_enforced: bool = False
    tags: tuple[str, ...] = ()
    detail: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSeams:
    """What the webhooks take from the world; tests put their own in place."""

    transport: httpx.AsyncBaseTransport | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    config: WebhookConfig
    secret: bytes
    queue: asyncio.Queue[Event]


class Webhooks:
    """Queues events and delivers them, each address in its own time and order.

    A full queue drops the newest event, an event that fails MAX_ATTEMPTS times is given up, and
    what waits when the service stops is lost; all are counted and logged. Judging never waits for
    a webhook.
    """

    def __init__(
        self,
        configs: tuple[WebhookConfig, ...],
        telemetry: Telemetry,
        *,
        env: Mapping[str, str],
        seams: WebhookSeams | None = None,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        self._telemetry = telemetry
        self._seams = seams or WebhookSeams()
        self._targets = tuple(
            _Target(config=each, secret=check_webhook(each, env), queue=asyncio.Queue(max_queued))
            for each in configs
        )

    def turn(self, result: TurnResult) -> None:
        """Send what became of a turn, where it is an event."""
        verdict, state = result.verdict, result.state
        kinds: dict[EventKind, bool] = {
            "block": result.is_blocked,
            "strip": bool(result.stripped),
            "lock": state.lock is not None and state.lock.turn == verdict.turn,
        }
        for kind in (kind for kind, happened in kinds.items() if happened):
            event = Event(
                kind=kind,
                session_id=state.session_id,
                tenant=state.tenant,
                at=self._seams.clock(),
                turn=verdict.turn,
                action=verdict.action.value,
                turn_risk=verdict.turn_risk,
                accumulated_risk=verdict.accumulated_risk,
                is_enforced=result.is_enforced,
                tags=verdict.tags,
            )
            self.publish(event)

    def labelled(self, session_id: str, tenant: str, verdict: str) -> None:
        """Send that a reviewer has labelled a session."""
        at = self._seams.clock()
        self.publish(
            Event(kind="label", session_id=session_id, tenant=tenant, at=at, detail=verdict)
        )

    def publish(self, event: Event) -> None:
        """Queue an event for every address that wants its kind."""
        for target in self._targets:
            if event.kind not in target.config.events:
                continue
            try:
                # Judging must not wait for a receiver.
                target.queue.put_nowait(event)
            except asyncio.QueueFull:
                self._lost(target, event, "queue full")

    async def run(self) -> None:
        """Deliver until cancelled."""
        transport = self._seams.transport
        client = httpx.AsyncClient(transport=transport, timeout=TIMEOUT_S, follow_redirects=False)
        try:
            async with client:
                await asyncio.gather(*(self._deliver_to(client, each) for each in self._targets))
        finally:
            # The service stops, and what still waits is kept nowhere else.
            for target in self._targets:
                while not target.queue.empty():
                    self._lost(target, target.queue.get_nowait(), "stopped")

    async def drain(self) -> None:
        """Return when everything queued was delivered or given up."""
        for target in self._targets:
            await target.queue.join()

    async def _deliver_to(self, client: httpx.AsyncClient, target: _Target) -> None:
        while True:
            event = await target.queue.get()
            fault = "stopped"
            try:
                fault = await self._fault_of(client, target, event)
            finally:
                if fault:
                    self._lost(target, event, fault)
                target.queue.task_done()

    async def _fault_of(self, client: httpx.AsyncClient, target: _Target, event: Event) -> str:
        """Deliver an event; returns why it was given up, empty where it was taken."""
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                await self._seams.sleep(delay_s(attempt - 1, None, self._seams.random))
            status = await self._attempted(client, target, event)
            if 200 <= status < 300:
                self._telemetry.webhook("delivered")
                return ""
            # A receiver that refuses will refuse again; only what may pass is tried anew.
            if status and not is_retryable(status):
                break
        return f"status {status}" if status else "unreachable"

    async def _attempted(self, client: httpx.AsyncClient, target: _Target, event: Event) -> int:
        """Send once; return the status, 0 where there was no answer."""
        body = json.dumps(asdict(event)).encode()
        # Signed anew at each attempt: receivers refuse old seconds.
        at = int(self._seams.clock())
        headers = {
            "content-type": "application/json",
            "user-agent": "promptguard",
            EVENT_ID: event.id,
            SIGNATURE: signature(target.secret, body, at=at),
        }
        sending = client.stream("POST", target.config.url, content=body, headers=headers)
        try:
            # Headers alone decide: a receiver cannot make us read its body.
            async with sending as response:
                return response.status_code
        except httpx.HTTPError:
            return 0

    def _lost(self, target: _Target, event: Event, reason: str) -> None:
        self._telemetry.webhook("lost")
        # The path of a webhook may hold a secret, so only its host is logged.
        host = httpx.URL(target.config.url).host
        log(logging.ERROR, "webhook lost", kind=event.kind, host=host, reason=reason)


def signature(secret: bytes, body: bytes, *, at: int) -> str:
    """Return the header that proves who sent `body` and when: `t=SECONDS,v1=HMAC-SHA256`.

    The time is signed with the body, so that a receiver can refuse what is repeated later.
    """
    digest = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def check_webhook(config: WebhookConfig, env: Mapping[str, str]) -> bytes:
    """Return the secret of a webhook; raises ConfigError where events could be read or forged."""
    try:
        url = httpx.URL(config.url)
    except httpx.InvalidURL:
        raise ConfigError(
            "The address of a webhook cannot be called; write https://HOST/PATH."
        ) from None
    if url.scheme == "http" and not is_loopback(url.host):
        raise ConfigError(
            f"The webhook to {url.host} needs https: plain HTTP goes to loopback only."
        )
    secret = env.get(config.secret_env, "")
    if len(secret) < 16:
        raise ConfigError(
            f"The webhook to {url.host} needs a secret of 16 characters or more: "
            f"set {config.secret_env}."
        )
    return secret.encode()
