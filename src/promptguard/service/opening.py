"""From settings to a running application's parts, and from parts to the application."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from promptguard.config import Settings
from promptguard.controller import Controller
from promptguard.guard import PromptGuard
from promptguard.providers import Endpoint, open_endpoint
from promptguard.service.auth import check_host
from promptguard.service.trial import try_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the application is assembled from.

    `read_settings` is asked at a reload. `clock` is the time of day, `timer` only moves forward.
    """

    settings: Settings
    controller: Controller
    guard: PromptGuard
    endpoint: Endpoint
    read_settings: Callable[[], Settings]
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)


def open_parts(settings: Settings, read_settings: Callable[[], Settings] | None = None) -> Parts:
    """Open everything the settings name; raises where something cannot be."""
    service = settings.service
    check_host(service.host, service.keys)
    endpoint = settings.conversation.endpoint.model_copy(
        update={"timeout_s": service.upstream_timeout_s}
    )
    controller = Controller(settings.conversation)
    try_out(controller.judge)
    return Parts(
        settings=settings,
        controller=controller,
        guard=PromptGuard(settings.evaluation),
        endpoint=open_endpoint(service.upstream, endpoint, key_env=service.upstream_key_env),
        read_settings=read_settings or partial(_same, settings),
    )


def _same(settings: Settings) -> Settings:
    return settings
