"""`promptguard sessions`: look at, export, lock, release and forget stored sessions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from promptguard.cli.stored import (
    complete_modes,
    config_option,
    find_key,
    json_option,
    session_argument,
    tenant_option,
    with_session,
    with_stored,
)
from promptguard.cli.terminal import plain
from promptguard.errors import InputError

if TYPE_CHECKING:
    from promptguard.protocols import SessionStore
    from promptguard.state import SessionState, TranscriptEntry


class _Given(NamedTuple):
    """The options of the group."""

    config_file: str | None
    tenant: str


@click.group()
@config_option
@tenant_option
@click.pass_context
def sessions(ctx: click.Context, config_file: str | None, tenant: str) -> None:
    """Look at, export, lock, release and forget stored sessions."""
    ctx.obj = _Given(config_file=config_file, tenant=tenant)


@sessions.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=50,
    show_default=True,
    help="How many sessions at most.",
)
@click.option(
    "--min-mode",
    default="SAFE",
    show_default=True,
    shell_complete=complete_modes,
    help="Lowest mode to show.",
)
@click.option("--contains", default="", help="Only ids that contain this text.")
@json_option
@click.pass_obj
def list_sessions(given: _Given, limit: int, min_mode: str, contains: str, as_json: bool) -> None:
    """List sessions, newest first."""
    from promptguard.protocols import SessionQuery
    from promptguard.risk.ledger import mode_named

    query = SessionQuery(
        tenant=given.tenant, limit=limit, min_mode=int(mode_named(min_mode)), contains=contains
    )
    found = with_stored(given.config_file, lambda store: store.sessions(query))
    if as_json:
        click.echo(json.dumps([_summary(state) for state in found], ensure_ascii=False))
    else:
        _show_list(found)


@sessions.command("show")
@session_argument
@json_option
@click.pass_obj
def show(given: _Given, session_id: str, as_json: bool) -> None:
    """Print a session's messages with the verdict on each turn."""
    _, entries = _transcript(given, session_id)
    if as_json:
        click.echo(json.dumps([_as_plain(entry) for entry in entries], ensure_ascii=False))
        return
    for entry in entries:
        text = entry.content if entry.content is not None else "(text not kept)"
        click.echo(f"{entry.turn:>4} {entry.role.value}: {plain(text)}{_note(entry)}")


@sessions.command("export")
@session_argument
@click.pass_obj
def export(given: _Given, session_id: str) -> None:
    """Print a session as one line of JSON that `scan` reads."""
    state, entries = _transcript(given, session_id)
    if any(entry.content is None for entry in entries):
        # Without its words a scan would find it harmless.
        raise InputError(
            "The text of this session was not kept (store_text, retention), so it cannot be "
            "exported; `sessions show --json` has its verdicts."
        )
    system = [{"role": "system", "content": state.system}] if state.system else []
    messages = [
        {"role": e.role.value, "content": e.content, "timestamp": e.timestamp} for e in entries
    ]
    body = {"id": state.session_id, "messages": [*system, *messages]}
    click.echo(json.dumps(body, ensure_ascii=False))


@sessions.command("release")
@session_argument
@click.option("--forgive", is_flag=True, help="What it has shown no longer counts.")
@json_option
@click.pass_obj
def release(given: _Given, session_id: str, forgive: bool, as_json: bool) -> None:
    """Unlock a session, so that its turns are judged on their own again."""
    state = with_session(
        given.config_file,
        session_id,
        given.tenant,
        lambda guard, key: guard.release(key.session_id, tenant=key.tenant, forgive=forgive),
    )
    _show_lock(state, as_json=as_json)


@sessions.command("lock")
@session_argument
@click.option("--reason", default="locked by hand", show_default=True, help="Kept with the lock.")
@json_option
@click.pass_obj
def lock(given: _Given, session_id: str, reason: str, as_json: bool) -> None:
    """Lock a session: every further turn is blocked until it is released."""
    state = with_session(
        given.config_file,
        session_id,
        given.tenant,
        lambda guard, key: guard.lock(key.session_id, reason=reason, tenant=key.tenant),
    )
    _show_lock(state, as_json=as_json)


@sessions.command("delete")
@session_argument
@json_option
@click.pass_obj
def delete(given: _Given, session_id: str, as_json: bool) -> None:
    """Forget a session wholly."""

    async def forget(store: SessionStore) -> str:
        key = await find_key(store, session_id, given.tenant)
        await store.delete(key)
        return key.session_id

    deleted = with_stored(given.config_file, forget)
    click.echo(json.dumps({"session_id": deleted, "deleted": True}) if as_json else "Deleted.")


def _show_lock(state: SessionState, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_summary(state), ensure_ascii=False))
    else:
        click.echo(f"Locked: {state.lock.reason}." if state.lock else "Released.")


def _transcript(given: _Given, session_id: str) -> tuple[SessionState, tuple[TranscriptEntry, ...]]:
    async def read(store: SessionStore) -> tuple[SessionState, tuple[TranscriptEntry, ...]]:
        key = await find_key(store, session_id, given.tenant)
        state = await store.load(key)
        assert state is not None
        return state, await store.transcript(key)

    return with_stored(given.config_file, read)


def _summary(state: SessionState) -> dict[str, object]:
    return {
        "session_id": state.session_id,
        "tenant": state.tenant,
        "turns": state.turn_count,
        "blocked": state.profile.blocked,
        "mode": state.mode.name,
        "accumulated_risk": state.accumulated_risk,
        "is_locked": state.lock is not None,
        "lock_reason": state.lock.reason if state.lock else "",
        "updated": state.updated,
    }


def _show_list(found: tuple[SessionState, ...]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("turns", "mode", "shown risk", "last turn", "")
    table.add_column("session", overflow="fold")
    for state in found:
        when = datetime.fromtimestamp(state.updated, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(
            str(state.turn_count),
            state.mode.name,
            f"{state.accumulated_risk:.3f}",
            when,
            "locked" if state.lock else "",
            Text(state.session_id),  # an id may hold what the table would take for markup
        )
    Console().print(table)


def _as_plain(entry: TranscriptEntry) -> dict[str, object]:
    return {
        **{name: getattr(entry, name) for name in ("turn", "role", "content", "timestamp")},
        "verdict": json.loads(entry.verdict) if entry.verdict else None,
    }


def _note(entry: TranscriptEntry) -> str:
    from promptguard.stores.rows import verdict_in

    if not entry.verdict:
        return ""
    verdict = verdict_in(entry.verdict)
    if verdict is None:
        return "  [a verdict that this version does not read]"
    return (
        f"  [{verdict.action.value}, turn risk {verdict.turn_risk:.2f}, "
        f"{verdict.mode.name} {verdict.accumulated_risk:.2f}]"
    )
