"""Stored sessions as the commands find them: an existing store, a session's key, completion."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from promptguard.config import load_settings
from promptguard.counts import counted
from promptguard.errors import PromptGuardError, SessionNotFound

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from promptguard.controller import Controller
    from promptguard.protocols import SessionKey, SessionStore

T = TypeVar("T")
_COMPLETIONS = 50


def with_stored(config_file: str | None, use: Callable[[SessionStore], Awaitable[T]]) -> T:
    """Run `use` on the configured store, which must exist."""
    return with_store(load_settings(config_file).conversation.store, use)


def with_store(url: str, use: Callable[[SessionStore], Awaitable[T]]) -> T:
    """Run `use` on a store, which must exist."""
    from promptguard.stores import open_store

    async def run() -> T:
        store = open_store(url, must_exist=True)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(run())


def with_session(
    config_file: str | None,
    session_id: str,
    tenant: str,
    use: Callable[[Controller, SessionKey], Awaitable[T]],
) -> T:
    """Run `use` on a stored session with the configured controller."""
    from promptguard.controller import Controller
    from promptguard.stores import open_store

    config = load_settings(config_file).conversation

    async def run() -> T:
        # A wrong path would else become a new, empty store.
        store = open_store(config.store, must_exist=True)
        async with Controller(config, store=store) as controller:
            return await use(controller, await find_key(store, session_id, tenant))

    return asyncio.run(run())


async def find_key(store: SessionStore, session_id: str, tenant: str) -> SessionKey:
    """Return the key of a stored session; SessionNotFound says where it was looked for.

    A terminal may compose letters otherwise than the client that named the session did: ids
    that read alike are the same. The service writes an odd id in its plain form.
    """
    from promptguard.protocols import SessionKey
    from promptguard.queries import plain_id

    read = (session_id, *(unicodedata.normalize(form, session_id) for form in ("NFC", "NFD")))
    for form in dict.fromkeys((*read, *map(plain_id, read))):
        key = SessionKey(session_id=form, tenant=tenant)
        if await store.load(key) is not None:
            return key
    raise SessionNotFound(await _missing(store, session_id, tenant))


async def _missing(store: SessionStore, session_id: str, tenant: str) -> str:
    from promptguard.protocols import SessionQuery

    # Whoever runs the command can read the whole store; another tenant's name is no secret.
    others = await store.sessions(SessionQuery(tenant=None, contains=session_id, limit=500))
    tenants = sorted({state.tenant for state in others if state.session_id == session_id})
    if tenants:
        return f"Tenant {tenant!r} has no such session, but {tenants[0]!r} has: use --tenant."
    return (
        f"Tenant {tenant!r} has no such session in this store; "
        "`promptguard sessions list` shows what is stored."
    )


def complete_sessions(
    ctx: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the newest stored sessions; nothing where the store cannot be read."""
    from click.shell_completion import CompletionItem

    from promptguard.protocols import SessionQuery

    config_file, tenant = _context_of(ctx)
    query = SessionQuery(tenant=tenant, contains=incomplete, limit=_COMPLETIONS)
    try:
        found = with_stored(config_file, lambda store: store.sessions(query))
    except PromptGuardError:
        # A key press must not print an error into the line that is being typed.
        return []
    return [
        CompletionItem(
            state.session_id, help=f"{state.mode.name}, {counted(state.turn_count, 'turn')}"
        )
        for state in found
        if state.session_id.startswith(incomplete)
    ]


def complete_modes(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Offer the modes."""
    from promptguard.verdict import Mode

    return [mode.name for mode in Mode if mode.name.startswith(incomplete.upper())]


def _context_of(ctx: click.Context) -> tuple[str | None, str]:
    """Return configuration file and tenant, from the command or the group above it."""
    given: dict[str, str | None] = {}
    for each in (ctx.parent, ctx):
        if each is not None:
            given |= {k: v for k, v in each.params.items() if k in ("config_file", "tenant")}
    return given.get("config_file"), given.get("tenant") or "default"


session_argument = click.argument("session_id", shell_complete=complete_sessions)
config_option = click.option(
    "--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file."
)
tenant_option = click.option("--tenant", default="default", show_default=True, help="Whose.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
