"""`promptguard explain` and `promptguard replay`: why a session got its verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from promptguard.cli.stored import (
    config_option,
    json_option,
    session_argument,
    tenant_option,
    with_session,
)
from promptguard.cli.terminal import plain
from promptguard.config import load_settings

if TYPE_CHECKING:
    from promptguard.turns.explain import Explanation
    from promptguard.verdict import Verdict

_REASONS = 2


@click.command()
@session_argument
@tenant_option
@json_option
@config_option
def explain(session_id: str, tenant: str, as_json: bool, config_file: str | None) -> None:
    """Say which turns, signals and contents made SESSION_ID what it is, in nats that add up."""
    found = with_session(
        config_file,
        session_id,
        tenant,
        lambda controller, key: controller.explain(key.session_id, tenant=key.tenant),
    )
    if as_json:
        click.echo(json.dumps(as_plain(found), ensure_ascii=False))
    else:
        _show(found)


@click.command()
@session_argument
@config_option
@click.option(
    "--with",
    "other_file",
    required=True,
    type=click.Path(dir_okay=False),
    help="Configuration to compare.",
)
@tenant_option
@json_option
def replay(
    session_id: str, config_file: str | None, other_file: str, tenant: str, as_json: bool
) -> None:
    """Judge SESSION_ID again under another configuration and show the difference by turn."""
    other = load_settings(other_file).conversation
    pairs = with_session(
        config_file,
        session_id,
        tenant,
        lambda controller, key: controller.replay(key.session_id, other, tenant=key.tenant),
    )
    if as_json:
        body = [{"now": ours.to_dict(), "then": theirs.to_dict()} for ours, theirs in pairs]
        click.echo(json.dumps(body, ensure_ascii=False))
    else:
        _show_pairs(pairs)


def as_plain(found: Explanation) -> dict[str, object]:
    """Return an explanation as plain values; verdicts in their one JSON form."""
    from promptguard.turns.sentence import verdict_sentence

    attribution = found.attribution
    return {
        "sentence": verdict_sentence(found.verdict, found.text),
        "verdict": found.verdict.to_dict(),
        "risks": [verdict.turn_risk for verdict in found.verdicts],
        "shown": {
            "prior": attribution.prior,
            "nats": attribution.nats,
            "risk": attribution.risk,
            "by_turn": [{"turn": turn, "nats": nats} for turn, nats in attribution.by_turn],
            "by_signal": [{"signal": name, "nats": nats} for name, nats in attribution.by_signal],
        },
        "entered": [{"turn": e.turn, "mode": e.mode.name} for e in found.entered],
        "without": found.without,
        "alone": {
            "turn_risk": found.alone.turn_risk,
            "mode": found.alone.mode.name,
            "action": found.alone.action.value,
        },
        "is_partial": found.is_partial,
    }


def _show(found: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from promptguard.turns.sentence import verdict_sentence

    console = Console(highlight=False)
    for line in (verdict_sentence(found.verdict, found.text), *_lines(found.verdict)):
        console.print(Text(plain(line)), soft_wrap=True)
    table = Table("turn", "turn risk", "shown risk", "mode", "action", "strongest evidence")
    for each in found.verdicts:
        top = each.top_evidence[:_REASONS]
        table.add_row(
            str(each.turn),
            f"{each.turn_risk:.2f}",
            f"{each.accumulated_risk:.2f}",
            each.mode.name,
            each.action.value,
            # Reasons quote rules and texts, which rich must not read as markup.
            Text(plain("; ".join(f"{e.signal} {e.nats:+.1f}: {e.reason}" for e in top))),
        )
    console.print(table)
    for line in _session_lines(found):
        console.print(Text(plain(line)), soft_wrap=True)


def _lines(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict on the last turn, its evidence, contents and readers."""
    nats = sum(entry.nats for entry in verdict.evidence)
    yield (
        f"Turn {verdict.turn}: {verdict.action.value}. Its own risk is {verdict.turn_risk:.3f} = "
        f"prior {verdict.prior:+.2f} and {nats:+.2f} nats of evidence."
    )
    for entry in sorted(verdict.evidence, key=lambda e: -abs(e.nats)):
        yield f"  {entry.nats:+6.2f} {entry.signal}: {entry.reason}"
    for finding in verdict.content:
        yield (
            f"Content {finding.index} ({finding.origin}): {finding.action.value}, risk "
            f"{finding.risk:.3f}, characters {finding.start} to {finding.end}: {finding.reason}"
        )
    yield f"Readers asked: {', '.join(verdict.readers) or 'none'}."
    if verdict.is_hard:
        yield f"A hard violation: {', '.join(verdict.rules)}."
    if verdict.fault:
        yield f"Fault: {verdict.fault}"


def _session_lines(found: Explanation) -> Iterator[str]:
    """Yield what the session has shown, and what would have been otherwise."""
    verdict, attribution = found.verdict, found.attribution
    yield (
        f"The session is {verdict.mode.name}{', locked' if verdict.is_locked else ''}: it has "
        f"shown a risk of {verdict.accumulated_risk:.3f} = {attribution.prior:+.2f} and "
        f"{attribution.nats:+.2f} nats that are left."
    )
    turns = ", ".join(f"turn {turn} {nats:+.2f}" for turn, nats in attribution.by_turn)
    signals = ", ".join(f"{name} {nats:+.2f}" for name, nats in attribution.by_signal)
    yield f"By turn: {turns or 'none'}"
    yield f"By signal: {signals or 'none'}"
    entered = ", ".join(f"{e.mode.name} at turn {e.turn}" for e in found.entered)
    yield f"Entered: {entered or 'no mode above SAFE'}"
    yield (
        f"The last message alone: {found.alone.mode.name}, {found.alone.action.value}, "
        f"turn risk {found.alone.turn_risk:.3f}"
    )
    if found.without:
        yield f"It would have passed without turn(s) {' and '.join(map(str, found.without))}."
    if found.is_partial:
        yield "Only the last turns of this very long session were replayed."


def _show_pairs(pairs: tuple[tuple[Verdict, Verdict], ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("turn", "now", "turn risk", "then", "turn risk", "")
    for ours, theirs in pairs:
        table.add_row(
            str(ours.turn),
            f"{ours.mode.name} {ours.action.value}",
            f"{ours.turn_risk:.2f}",
            f"{theirs.mode.name} {theirs.action.value}",
            f"{theirs.turn_risk:.2f}",
            "≠" if ours.action != theirs.action else "",
        )
    Console().print(table)
