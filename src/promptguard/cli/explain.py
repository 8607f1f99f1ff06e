"""`promptguard explain` and `promptguard replay`: why a session got its verdict."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from promptguard.turns.explain import Explanation
    from promptguard.turns.verdict import TurnVerdict


@click.command()
@click.argument("session_id")
@click.option("--tenant", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
def explain(session_id: str, tenant: str, as_json: bool, config_file: str | None) -> None:
    """Say which turns and signals made SESSION_ID what it is, in nats that add up."""
    from promptguard.config import load_settings
    from promptguard.controller import Controller

    async def run() -> Explanation:
        async with Controller(load_settings(config_file).conversation) as controller:
            return await controller.explain(session_id, tenant=tenant)

    found = asyncio.run(run())
    if as_json:
        click.echo(json.dumps(as_plain(found), ensure_ascii=False))
    else:
        _show(found)


@click.command()
@click.argument("session_id")
@click.option("--config", "config_file", type=click.Path(), help="Configuration it ran under.")
@click.option(
    "--with", "other_file", required=True, type=click.Path(), help="Configuration to compare."
)
@click.option("--tenant", default="default", show_default=True)
def replay(session_id: str, config_file: str | None, other_file: str, tenant: str) -> None:
    """Judge SESSION_ID again under another configuration and show the difference by turn."""
    from rich.console import Console
    from rich.table import Table

    from promptguard.config import load_settings
    from promptguard.controller import Controller

    other = load_settings(other_file).conversation

    async def run() -> tuple[tuple[TurnVerdict, TurnVerdict], ...]:
        async with Controller(load_settings(config_file).conversation) as controller:
            return await controller.replay(session_id, other, tenant=tenant)

    table = Table("turn", "now", "risk", "then", "risk", "")
    for ours, theirs in asyncio.run(run()):
        differs = "≠" if ours.action != theirs.action else ""
        table.add_row(
            str(ours.turn),
            f"{ours.mode.name} {ours.action.value}",
            f"{ours.risk:.2f}",
            f"{theirs.mode.name} {theirs.action.value}",
            f"{theirs.risk:.2f}",
            differs,
        )
    Console().print(table)


def as_plain(found: Explanation) -> dict[str, object]:
    """Return an explanation as plain values."""
    verdict, attribution = found.verdict, found.attribution
    return {
        "turn": verdict.turn,
        "risk": verdict.risk,
        "mode": verdict.mode.name,
        "action": verdict.action.value,
        "is_hard": verdict.is_hard,
        "tags": verdict.tags,
        "prior": attribution.prior,
        "nats": attribution.nats,
        "by_turn": [{"turn": turn, "nats": nats} for turn, nats in attribution.by_turn],
        "by_signal": [{"signal": name, "nats": nats} for name, nats in attribution.by_signal],
        "entered": [{"turn": e.turn, "mode": e.mode.name} for e in found.entered],
        "without": found.without,
        "alone": {
            "risk": found.alone.risk,
            "mode": found.alone.mode.name,
            "action": found.alone.action.value,
        },
        "is_partial": found.is_partial,
    }


def _show(found: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    verdict, attribution = found.verdict, found.attribution
    console.print(
        f"Turn {verdict.turn}: [bold]{verdict.mode.name}[/] → {verdict.action.value}, "
        f"risk {verdict.risk:.3f} = prior {attribution.prior:+.2f} and "
        f"{attribution.nats:+.2f} nats of evidence"
    )
    table = Table("turn", "nats", "risk", "mode", "strongest evidence")
    nats = dict(attribution.by_turn)
    for each in found.verdicts:
        top = each.top_evidence[:2]
        reasons = "; ".join(f"{e.signal} {e.nats:+.1f}: {e.reason}" for e in top)
        weight = f"{nats.get(each.turn, 0.0):+.2f}"
        table.add_row(str(each.turn), weight, f"{each.risk:.2f}", each.mode.name, reasons)
    console.print(table)
    signals = ", ".join(f"{name} {value:+.2f}" for name, value in attribution.by_signal)
    console.print(f"By signal: {signals or 'none'}")
    entered = ", ".join(f"{e.mode.name} at turn {e.turn}" for e in found.entered)
    console.print(f"Entered: {entered or 'no mode above SAFE'}")
    console.print(
        f"The last message alone: {found.alone.mode.name}, {found.alone.action.value}, "
        f"risk {found.alone.risk:.3f}"
    )
    if found.without:
        turns = " and ".join(map(str, found.without))
        console.print(f"It would have passed without turn(s) {turns}.")
    if found.is_partial:
        console.print("Only the last turns of this very long session were replayed.")
