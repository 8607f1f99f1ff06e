"""Sessions as they change: a page follows the store for as long as someone looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from nicegui import background_tasks, ui

from promptguard.errors import PromptGuardError
from promptguard.protocols import SessionKey
from promptguard.service.auth import Scope
from promptguard.service.dashboard.access import Visitor
from promptguard.service.dashboard.desk import Desk

RETRY_S = 5.0

OnChange = Callable[[SessionKey], Awaitable[None]]
OnState = Callable[[bool], None]


def follow(desk: Desk, visitor: Visitor, on_change: OnChange, on_state: OnState) -> None:
    """Call `on_change` for each saved session of the visitor's tenant until the page is closed.

    What is saved from this call on is not missed, so call it before the page reads the store.
    `on_state` hears whether changes can be followed.
    """
    client = ui.context.client
    changes = desk.controller.store.changes()

    async def hear(source: AsyncIterator[SessionKey]) -> None:
        async for key in source:
            if not visitor.may(Scope.READ):
                return
            if key.tenant == visitor.tenant:
                on_state(True)
                await on_change(key)

    async def listen() -> None:
        source, is_over = changes, False
        while not is_over and visitor.may(Scope.READ):
            try:
                await hear(source)
                is_over = True
            except PromptGuardError:
                on_state(False)
                await asyncio.sleep(RETRY_S)
                source = desk.controller.store.changes()

    on_state(True)
    task = background_tasks.create(listen(), name="follow the store")
    client.on_delete(lambda: task.cancel())
