"""`promptguard chat`: talk, and watch the risk build up; works without a model too."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import click

from promptguard.cli.stored import complete_sessions, config_option
from promptguard.cli.terminal import plain
from promptguard.config import load_settings
from promptguard.errors import ProviderError

if TYPE_CHECKING:
    from promptguard.controller import Controller
    from promptguard.state import TranscriptEntry

_COLOURS = {"allow": "green", "annotate": "cyan", "steer": "yellow", "review": "magenta"}
_REASONS = 3


@click.command()
@click.option("--model", help="Model to talk to, such as ollama/llama3.2; none: judge only.")
@click.option(
    "--session",
    "session_id",
    shell_complete=complete_sessions,
    help="Session to go on with; default: a new one.",
)
@config_option
def chat(model: str | None, session_id: str | None, config_file: str | None) -> None:
    """Talk to a guarded model; an empty line or the end of input leaves.

    A model that does not answer costs its reply only: the verdict is shown and kept.
    """
    from promptguard.controller import Controller

    config = load_settings(config_file).conversation
    if model:
        config = config.model_copy(update={"model": model})
    session = session_id or uuid.uuid4().hex[:12]
    # Input is read outside of the event loop: a thread that waits for a line could not be
    # interrupted, and Ctrl-C would wait for the Enter key.
    with asyncio.Runner() as runner:
        controller = Controller(config)
        try:
            click.echo(f"Session {session}. An empty line leaves.", err=True)
            if session_id:
                runner.run(_show_earlier(controller, session))
            while text := _read_line():
                runner.run(_turn(controller, session, text))
        finally:
            runner.run(controller.close())


def _read_line() -> str:
    click.echo("you: ", nl=False, err=True)
    try:
        return input()
    except EOFError:
        return ""


async def _turn(controller: Controller, session: str, text: str) -> None:
    from promptguard.turns.result import TurnResult

    fault = ""
    try:
        async for piece in controller.stream_turn(session, text):
            if isinstance(piece, TurnResult):
                fault = piece.verdict.fault
                click.echo()
            else:
                click.echo(plain(piece), nl=False)
    except ProviderError as error:
        click.secho(f"\nNo reply: {error}", fg="red", err=True)
    if fault:
        click.secho(f"  fault: {fault}", fg="red", err=True)
    # Read from the store: the verdict is there also where the model failed before a result came.
    asked = [entry for entry in await _transcript(controller, session) if entry.verdict]
    if asked:
        _show_verdict(asked[-1])


async def _show_earlier(controller: Controller, session: str) -> None:
    entries = await _transcript(controller, session)
    if not entries:
        click.echo("There is no such session yet; it begins here.", err=True)
    for entry in entries:
        text = "(text not kept)" if entry.content is None else entry.content
        click.secho(f"{entry.role.value}: {plain(text)}", dim=True)
        if entry.verdict:
            _show_verdict(entry)


async def _transcript(controller: Controller, session: str) -> tuple[TranscriptEntry, ...]:
    from promptguard.protocols import SessionKey

    return await controller.store.transcript(SessionKey(session_id=session))


def _show_verdict(entry: TranscriptEntry) -> None:
    """Print the stored verdict on a turn: both risks, contents, and what speaks most for it."""
    from promptguard.stores.rows import verdict_in

    verdict = verdict_in(entry.verdict)
    if verdict is None:
        click.secho("  a verdict that this version does not read", fg="red", err=True)
        return
    risk, action = verdict.turn_risk, verdict.action.value
    line = (
        f"{'█' * round(risk * 20):<20} {risk:.2f} → {action}, "
        f"session {verdict.accumulated_risk:.2f} {verdict.mode.name}"
    )
    click.secho(line, fg=_COLOURS.get(action, "red"), err=True)
    for item in verdict.top_evidence[:_REASONS]:
        reason = plain(item.reason)
        click.secho(f"  {item.nats:+.2f} {item.signal}: {reason}", dim=True, err=True)
