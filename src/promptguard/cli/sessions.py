"""`promptguard sessions`: look at, export and forget stored sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from promptguard.errors import SessionNotFound

if TYPE_CHECKING:
    from promptguard.protocols import SessionStore
    from promptguard.state import TranscriptEntry

T = TypeVar("T")


@click.group()
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
@click.option("--tenant", default="default", show_default=True)
@click.pass_context
def sessions(ctx: click.Context, config_file: str | None, tenant: str) -> None:
    """Look at, export and forget stored sessions."""
    ctx.obj = (config_file, tenant)


@sessions.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--min-mode", default="SAFE", show_default=True, help="Lowest mode to show.")
@click.pass_obj
def list_sessions(given: tuple[str | None, str], limit: int, min_mode: str) -> None:
    """List sessions, newest first."""
    from rich.console import Console
    from rich.table import Table

    from promptguard.protocols import SessionQuery
    from promptguard.risk.policy import mode_named

    config_file, tenant = given
    query = SessionQuery(tenant=tenant, limit=limit, min_mode=int(mode_named(min_mode)))
    table = Table("session", "turns", "mode", "risk", "last turn")
    for state in _with_store(config_file, lambda store: store.sessions(query)):
        when = datetime.fromtimestamp(state.updated, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(
            state.session_id,
            str(state.turn_count),
            state.mode.name,
            f"{state.accumulated_risk:.3f}",
            when,
        )
    Console().print(table)


@sessions.command("show")
@click.argument("session_id")
@click.pass_obj
def show(given: tuple[str | None, str], session_id: str) -> None:
    """Print a session's messages with the verdict on each turn."""
    for entry in _entries(given, session_id):
        text = entry.content if entry.content is not None else "(text not kept)"
        verdict = json.loads(entry.verdict) if entry.verdict else None
        note = f"  [{verdict['mode']} {verdict['risk']:.2f} {verdict['action']}]" if verdict else ""
        click.echo(f"{entry.turn:>4} {entry.role.value}: {text}{note}")


@sessions.command("export")
@click.argument("session_id")
@click.pass_obj
def export(given: tuple[str | None, str], session_id: str) -> None:
    """Print a session as one line of JSON that `scan` reads."""
    entries = _entries(given, session_id)
    messages = [
        {"role": e.role.value, "content": e.content or "", "timestamp": e.timestamp}
        for e in entries
    ]
    click.echo(json.dumps({"id": session_id, "messages": messages}, ensure_ascii=False))


@sessions.command("delete")
@click.argument("session_id")
@click.pass_obj
def delete(given: tuple[str | None, str], session_id: str) -> None:
    """Forget a session wholly."""
    from promptguard.protocols import SessionKey

    config_file, tenant = given
    key = SessionKey(session_id=session_id, tenant=tenant)
    if not _with_store(config_file, lambda store: store.delete(key)):
        raise SessionNotFound("There is no such session.")
    click.echo("Deleted.")


def _entries(given: tuple[str | None, str], session_id: str) -> tuple[TranscriptEntry, ...]:
    from promptguard.protocols import SessionKey

    config_file, tenant = given
    key = SessionKey(session_id=session_id, tenant=tenant)
    entries = _with_store(config_file, lambda store: store.transcript(key))
    if not entries:
        raise SessionNotFound(
            "There is no such session; `promptguard sessions list` shows what is stored."
        )
    return entries


def _with_store(config_file: str | None, use: Callable[[SessionStore], Awaitable[T]]) -> T:
    from promptguard.config import load_settings
    from promptguard.stores import open_store

    async def run() -> T:
        store = open_store(load_settings(config_file).conversation.store)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(run())
