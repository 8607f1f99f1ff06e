"""`promptguard prompts`: the evaluation types, their versions, and how these compare."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from promptguard.cli import EXIT_ALLOW, EXIT_CAUTION
from promptguard.cli.labelled_data import Reading, read_dataset, reading_options
from promptguard.cli.stored import config_option
from promptguard.cli.terminal import plain
from promptguard.config import EvaluationMode, PromptGuardConfig, load_settings
from promptguard.counts import counted
from promptguard.errors import ConfigError
from promptguard.usage import cost_text

if TYPE_CHECKING:
    from promptguard.evaluators.prompts import EvaluationPrompt
    from promptguard.validation.prompt_versions import VersionComparison


class _TriedCase(TypedDict):
    name: str
    is_right: bool
    detected_by: list[str]


@click.group()
def prompts() -> None:
    """List, show, compare and try the evaluation types."""


@prompts.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with every version.")
def list_prompts(as_json: bool) -> None:
    """List every evaluation type with its version, layers and hash."""
    from rich.console import Console
    from rich.table import Table

    from promptguard.evaluators.prompts import evaluation_prompts, shipped_versions

    if as_json:
        click.echo(json.dumps([_row(prompt) for prompt in shipped_versions()], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("name", "version", "applies to", "finds", "sha256"):
        table.add_column(heading, no_wrap=True)
    for _, prompt in evaluation_prompts():
        layers = ", ".join(layer.name.lower() for layer in prompt.applies_to)
        table.add_row(prompt.name, prompt.version, layers, prompt.finds, prompt.sha256[:12])
    Console(highlight=False).print(table)


@prompts.command()
@click.argument("name")
@click.option("--full", is_flag=True, help="With the frame, as a judge receives it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(name: str, full: bool, as_json: bool) -> None:
    """Print the text of evaluation type NAME, or of one version as NAME@VERSION."""
    from promptguard.evaluators.llm import messages_for
    from promptguard.evaluators.prompts import evaluation_prompt
    from promptguard.protocols import LayerTask

    prompt = evaluation_prompt(name)
    task = LayerTask(evaluation_type=name, content="TEXT", layer=prompt.applies_to[0].name)
    framed = [(message.role.value, message.content) for message in messages_for(task, "MARKER")]
    if as_json:
        body = {**_row(prompt), "text": prompt.text}
        if full:
            body["messages"] = [{"role": role, "content": text} for role, text in framed]
        click.echo(json.dumps(body, indent=2, ensure_ascii=False))
    elif full:
        click.echo("\n".join(f"--- {role}\n{text}" for role, text in framed))
    else:
        click.echo(prompt.text)


@prompts.command()
@click.argument("old")
@click.argument("new")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def diff(ctx: click.Context, old: str, new: str, as_json: bool) -> None:
    """Show how two texts differ: each a NAME, NAME@VERSION, or a file.

    Exit code: 0 where they are equal, 1 where they differ.
    """
    lines = list(
        difflib.unified_diff(
            _text(old).splitlines(), _text(new).splitlines(), fromfile=old, tofile=new, lineterm=""
        )
    )
    if as_json:
        click.echo(json.dumps({"is_equal": not lines, "diff": lines}, ensure_ascii=False))
    else:
        for line in lines:
            click.echo(line)
    ctx.exit(EXIT_CAUTION if lines else EXIT_ALLOW)


@prompts.command()
@click.option("--model", help="Judge the trial cases with this model as well.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def test(ctx: click.Context, model: str | None, as_json: bool) -> None:
    """Check texts against their manifest and, with a model, try the cases on it.

    Exit code: 0 where all is as expected, 1 where a case is not.
    """
    from promptguard.evaluators.prompts import read_prompts, shipped_prompts

    # Read anew from the files, which compares each text with the hash in its manifest.
    texts = read_prompts(shipped_prompts())
    cases = _try_cases(model) if model else []
    if as_json:
        body = {"prompts": [_row(prompt) for prompt in texts], "cases": cases}
        click.echo(json.dumps(body, indent=2))
    else:
        for prompt in texts:
            click.echo(f"ok    {prompt.name} {prompt.version} is what its manifest says")
        for case in cases:
            by = ", ".join(case["detected_by"]) or "nothing"
            word = "ok   " if case["is_right"] else "wrong"
            click.echo(f"{word} {case['name']}: detected by {by}")
    ctx.exit(EXIT_ALLOW if all(case["is_right"] for case in cases) else EXIT_CAUTION)


@prompts.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--data", multiple=True, required=True, help="Labelled records; repeatable.")
@click.option("--model", required=True, help="Judge, such as ollama/llama3.2.")
@click.option("--type", "evaluation_type", help="Evaluation type, where A and B are files.")
@reading_options
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Chance of a false finding that is accepted.",
)
@click.option("--fail-on-regression", is_flag=True, help="Exit with 1 where B is worse.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@config_option
@click.pass_context
def compare(
    ctx: click.Context,
    first: str,
    second: str,
    data: tuple[str, ...],
    model: str,
    evaluation_type: str | None,
    seed: int,
    alpha: float,
    fail_on_regression: bool,
    as_json: bool,
    config_file: str | None,
    **reading: Unpack[Reading],
) -> None:
    """Judge the same records under A and B, two versions of one evaluation prompt.

    A and B are each a NAME, NAME@VERSION or a text file. B is worse where it judges fewer
    records rightly, beyond chance (McNemar's p below --alpha). Exit code: 0; with
    --fail-on-regression 1 where B is worse; 3 on an error.
    """
    from promptguard.validation.prompt_versions import (
        compare_versions,
        comparison_as_json,
        resolve_versions,
    )

    versions = resolve_versions(first, second, evaluation_type=evaluation_type)
    cases = read_dataset(data, reading, seed=seed).cases
    config = load_settings(config_file).evaluation.model_copy(
        # One judge: with several, the text would not be the only difference.
        update={"models": (model,), "mode": EvaluationMode.SINGLE}
    )
    found = compare_versions(cases, versions, config, alpha=alpha)
    if as_json:
        click.echo(comparison_as_json(found))
    else:
        _show_comparison(found)
    ctx.exit(EXIT_CAUTION if found.is_regression and fail_on_regression else EXIT_ALLOW)


def _show_comparison(found: VersionComparison) -> None:
    click.echo(counted(found.records, "record"))
    for letter, result in (("A", found.first), ("B", found.second)):
        click.echo(
            f"{letter} {result.version.name}: {counted(result.true_positives, 'attack')} blocked, "
            f"{result.false_negatives} passed; {result.true_negatives} benign passed, "
            f"{result.false_positives} blocked; {result.failed} failed; "
            f"{counted(result.usage.calls, 'call')}, {cost_text(result.usage)}"
        )
    click.echo(
        f"only A right {found.only_first_right}, only B right {found.only_second_right}, "
        f"McNemar p = {found.p_value:.4f}"
        + (f": B is worse (p < {found.alpha:g})" if found.is_regression else "")
    )
    for change in found.changed:
        # The id is a stranger's, as texts are.
        name = plain(str(change.id))
        click.echo(f"  {name} ({change.label}): {change.first} -> {change.second}")


def _try_cases(model: str) -> list[_TriedCase]:
    from promptguard.evaluation import PromptGuard
    from promptguard.evaluators.prompts import trial_cases

    tried: list[_TriedCase] = []
    guard = PromptGuard(PromptGuardConfig(models=(model,)))
    try:
        for case in trial_cases():
            found = guard.evaluate_sync(case.user, system=case.system).detected_by
            is_right = bool(found) == case.is_attack
            tried.append({"name": case.name, "is_right": is_right, "detected_by": list(found)})
    finally:
        guard.close_sync()
    return tried


def _row(prompt: EvaluationPrompt) -> dict[str, object]:
    return {
        "name": prompt.name,
        "version": prompt.version,
        "applies_to": [layer.name.lower() for layer in prompt.applies_to],
        "finds": prompt.finds.value,
        "sha256": prompt.sha256,
    }


def _text(which: str) -> str:
    from promptguard.evaluators.prompts import evaluation_prompt, frame

    if Path(which).is_file():
        try:
            return Path(which).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ConfigError(f"{which} is not UTF-8 text.") from None
    name, _, version = which.partition("@")
    if name == frame().name and version in ("", frame().version):
        return frame().text
    return evaluation_prompt(which).text
