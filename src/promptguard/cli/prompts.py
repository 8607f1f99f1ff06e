"""`promptguard prompts`: the evaluation types, their texts, versions and trial cases."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptguard.cli import EXIT_ALLOW, EXIT_CAUTION
from promptguard.errors import ConfigError

if TYPE_CHECKING:
    from promptguard.evaluators.prompts import EvaluationPrompt


@click.group()
def prompts() -> None:
    """List, show, compare and try the evaluation types."""


@prompts.command("list")
def list_prompts() -> None:
    """List every evaluation type with its version, layers and hash."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("name", "version", "applies to", "sha256"):
        table.add_column(heading, no_wrap=True)
    for prompt in _all():
        layers = ", ".join(layer.name.lower() for layer in prompt.applies_to)
        table.add_row(prompt.name, prompt.version, layers, prompt.sha256[:12])
    Console(highlight=False).print(table)


@prompts.command()
@click.argument("name")
@click.option("--full", is_flag=True, help="With the frame, as a judge receives it.")
def show(name: str, full: bool) -> None:
    """Print the text of evaluation type NAME."""
    from promptguard.evaluators.llm import messages_for
    from promptguard.evaluators.prompts import evaluation_prompt
    from promptguard.protocols import LayerTask

    prompt = evaluation_prompt(name)
    if not full:
        click.echo(prompt.text)
        return
    task = LayerTask(evaluation_type=name, content="TEXT", layer=prompt.applies_to[0].name)
    for message in messages_for(task, "MARKER"):
        click.echo(f"--- {message.role}\n{message.content}")


@prompts.command()
@click.argument("old")
@click.argument("new")
@click.pass_context
def diff(ctx: click.Context, old: str, new: str) -> None:
    """Compare two texts: each a NAME, NAME@VERSION of the shipped files, or a file.

    Exit code: 0 where they are equal, 1 where they differ.
    """
    lines = difflib.unified_diff(
        _text(old).splitlines(), _text(new).splitlines(), fromfile=old, tofile=new, lineterm=""
    )
    count = 0
    for count, line in enumerate(lines, start=1):  # noqa: B007  the count is used below
        click.echo(line)
    ctx.exit(EXIT_CAUTION if count else EXIT_ALLOW)


@prompts.command()
@click.option("--model", help="Judge the trial cases with this model as well.")
@click.pass_context
def test(ctx: click.Context, model: str | None) -> None:
    """Check texts against their manifest and, with a model, try the cases on it.

    Exit code: 0 where all is as expected, 1 where a case is not.
    """
    from promptguard.evaluators.prompts import read_prompts, shipped_prompts

    for prompt in read_prompts(shipped_prompts()):
        click.echo(f"ok    {prompt.name} {prompt.version} is what its manifest says")
    misses = _try_cases(model) if model else 0
    ctx.exit(EXIT_CAUTION if misses else EXIT_ALLOW)


def _try_cases(model: str) -> int:
    from promptguard.config import PromptGuardConfig
    from promptguard.evaluators.prompts import trial_cases
    from promptguard.guard import PromptGuard

    misses = 0
    guard = PromptGuard(PromptGuardConfig(models=(model,)))
    try:
        for case in trial_cases():
            found = guard.evaluate_sync(case.user, system=case.system).detected_by
            is_right = bool(found) == case.is_attack
            misses += not is_right
            by = ", ".join(found) or "nothing"
            click.echo(f"{'ok   ' if is_right else 'wrong'} {case.name}: detected by {by}")
    finally:
        guard.close_sync()
    return misses


def _all() -> list[EvaluationPrompt]:
    from promptguard.evaluators.prompts import evaluation_prompts

    return [prompt for _, prompt in evaluation_prompts()]


def _text(which: str) -> str:
    from promptguard.evaluators.prompts import evaluation_prompt, shipped_prompts

    name, _, version = which.partition("@")
    if version:
        file = shipped_prompts().joinpath(f"{name}-{version}.md")
        if not file.is_file():
            raise ConfigError(f"There is no version {version} of {name}.")
        return file.read_text(encoding="utf-8")
    if Path(which).is_file():
        return Path(which).read_text(encoding="utf-8")
    return evaluation_prompt(which).text
