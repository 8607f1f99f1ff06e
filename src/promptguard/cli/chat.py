"""`promptguard chat`: talk, and watch the risk build up; works without a model too."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from promptguard.controller import Controller, TurnResult

_COLOURS = ("green", "cyan", "yellow", "magenta", "red", "red")


@click.command()
@click.option("--model", help="Model to talk to, such as ollama/llama3.2; none: judge only.")
@click.option("--session", "session_id", help="Session to go on with; default: a new one.")
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
def chat(model: str | None, session_id: str | None, config_file: str | None) -> None:
    """Talk to a guarded model; an empty line or the end of input leaves."""
    from promptguard.config import load_settings
    from promptguard.controller import Controller

    config = load_settings(config_file).conversation
    if model:
        config = config.model_copy(update={"model": model})

    async def run() -> None:
        async with Controller(config) as controller:
            await _talk(controller, session_id or uuid.uuid4().hex[:12])

    asyncio.run(run())


async def _talk(controller: Controller, session_id: str) -> None:
    from promptguard.controller import TurnResult

    click.echo(f"Session {session_id}. An empty line leaves.", err=True)
    while said := await asyncio.to_thread(_ask):
        async for piece in controller.stream_turn(session_id, said):
            if isinstance(piece, TurnResult):
                click.echo()
                _show(piece)
            else:
                click.echo(piece, nl=False)


def _ask() -> str:
    try:
        answer: str = click.prompt("you", default="", show_default=False, err=True)
    except (click.Abort, EOFError):
        return ""
    return answer


def _show(result: TurnResult) -> None:
    state = result.state
    bar = "█" * round(state.accumulated_risk * 20)
    line = f"{bar:<20} {state.accumulated_risk:.2f} {state.mode.name} → {result.action.value}"
    click.secho(line, fg=_COLOURS[state.mode], err=True)
    if result.fault:
        click.secho(f"  could not judge: {result.fault}", fg="red", err=True)
    top = result.verdict.top_evidence[:3] if result.verdict else ()
    for entry in top:
        click.secho(f"  {entry.nats:+.2f} {entry.signal}: {entry.reason}", dim=True, err=True)
