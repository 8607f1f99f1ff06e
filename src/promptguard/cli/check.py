"""`promptguard check`: judge one prompt and show the findings."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from promptguard.cli import EXIT_ALLOW, EXIT_BLOCK, EXIT_CAUTION
from promptguard.cli.stored import config_option
from promptguard.cli.terminal import plain
from promptguard.config import EvaluationMode, PromptGuardConfig, load_settings
from promptguard.core.decision import Decision, Label
from promptguard.counts import counted
from promptguard.usage import cost_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from promptguard.evaluators.metrics import ReciprocityMetrics


# Exit code, colour, and what was done, in the words of the pages.
_DECISIONS = {
    Decision.ALLOW: (EXIT_ALLOW, "green", "allowed"),
    Decision.CAUTION: (EXIT_CAUTION, "yellow", "marked for caution"),
    Decision.BLOCK: (EXIT_BLOCK, "red", "blocked"),
}


@click.command()
@click.argument("text", required=False)
@click.option("--system", help="System prompt above the text.")
@click.option("--application", help="The application's layer between system and user.")
@click.option("--evaluation-type", "types", multiple=True, help="Way to look at it; repeatable.")
@click.option("--strategy", help="How several evaluation types are merged.")
@click.option("--model", "models", multiple=True, help="Judge; repeatable (then all are asked).")
@click.option("--json", "as_json", is_flag=True, help="Print every number as JSON.")
@config_option
@click.pass_context
def check(
    ctx: click.Context,
    text: str | None,
    system: str | None,
    application: str | None,
    types: tuple[str, ...],
    strategy: str | None,
    models: tuple[str, ...],
    as_json: bool,
    config_file: str | None,
) -> None:
    """Judge TEXT, or standard input where TEXT is - or missing.

    Exit code: 0 allow, 1 caution, 2 block, 3 error.
    """
    from promptguard.evaluation import PromptGuard
    from promptguard.evaluators.metrics import metrics_as_json

    config = _config(config_file, types, strategy, models)
    guard = PromptGuard(config)
    given = _given(text)
    try:
        metrics = guard.evaluate_sync(given, system=system, application=application)
    finally:
        guard.close_sync()
    if as_json:
        body = {"sentence": told(metrics, given), **json.loads(metrics_as_json(metrics))}
        click.echo(json.dumps(body, indent=2, ensure_ascii=False))
    else:
        _show(metrics, given)
    ctx.exit(_DECISIONS[metrics.decision][0])


def _given(text: str | None) -> str:
    if text is not None and text != "-":
        return text
    # Whatever bytes were piped in are judged; the terminal's encoding does not matter.
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _config(
    path: str | None, types: tuple[str, ...], strategy: str | None, models: tuple[str, ...]
) -> PromptGuardConfig:
    chosen = load_settings(path).evaluation.model_dump()
    if types:
        chosen["evaluation_type"] = types
    if strategy:
        chosen["ensemble_strategy"] = strategy
    if models:
        chosen["models"] = models
        # A configured cascade stays one: there the order of models says who is asked after whom.
        if chosen["mode"] is not EvaluationMode.CASCADE:
            chosen["mode"] = EvaluationMode.PARALLEL if len(models) > 1 else EvaluationMode.SINGLE
    return PromptGuardConfig(**chosen)


def _show(metrics: ReciprocityMetrics, text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    out = Console(highlight=False)
    colour = _DECISIONS[metrics.decision][1]
    out.print(f"[bold {colour}]{metrics.decision.upper()}[/]  {metrics.label}, {_why(metrics)}")
    # The sentence quotes the prompt, which rich must not read as markup.
    out.print(Text(plain(told(metrics, text))), soft_wrap=True)
    out.print(_table(metrics))
    out.print(
        f"balance {metrics.ayni_balance:+.2f}{_alone(metrics)} · "
        f"{metrics.exchange_type} exchange · "
        f"trust {metrics.trust.strength:.2f}"
    )
    for name, items in (
        ("violations", metrics.trust.violations),
        ("disguises undone", metrics.disguises),
        ("left out", metrics.failures),
    ):
        if items:
            out.print(f"{name}: {', '.join(items)}", markup=False)
    _show_cost(metrics, out)


def told(metrics: ReciprocityMetrics, text: str) -> str:
    """Return the decision in one plain sentence."""
    from promptguard.patterns.wordlist import shipped_concepts
    from promptguard.text.read import read_text
    from promptguard.turns.labels import telling_spans
    from promptguard.turns.sentence import (
        OVERRIDING,
        REVEALING,
        Found,
        named_in,
        sentence,
        words_in,
    )

    done = _DECISIONS[metrics.decision][2]
    if metrics.decision is Decision.ALLOW:
        return sentence(
            Found(subject="The text", done=done, further=": nothing in it points to an attack")
        )
    spans = telling_spans(text, shipped_concepts().match(read_text(text).folded))
    by_label = REVEALING if metrics.label is Label.EXTRACTIVE else OVERRIDING
    return sentence(
        Found(
            subject="The text",
            done=done,
            why=named_in(spans) or by_label,
            words=words_in(text, spans),
            is_disguised=bool(metrics.disguises),
        )
    )


def _alone(metrics: ReciprocityMetrics) -> str:
    is_same = abs(metrics.user_balance - metrics.ayni_balance) < 0.005
    return "" if is_same else f" (user layer alone {metrics.user_balance:+.2f})"


def _why(metrics: ReciprocityMetrics) -> str:
    types = ", ".join(metrics.detected_by)
    if metrics.decision == "block":
        return f"found by {types or 'the evaluations together'}"
    if types:
        return f"found by {types}, outweighed by the others"
    if any(one.is_unresolved for layer in metrics.per_layer.values() for one in layer.evaluations):
        return "a doubt that a further judge should have settled stands"
    if metrics.decision == "caution":
        return "the evaluations are undecided"
    return "no evaluation crosses the threshold"


def _table(metrics: ReciprocityMetrics) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("layer", "evaluation", "judge"):
        table.add_column(heading)
    for heading in ("truth", "doubt", "falsehood"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for layer in metrics.per_layer.values():
        for found in layer.evaluations:
            for judgement in found.judgements:
                table.add_row(
                    layer.name,
                    escape(found.evaluation_type),
                    escape(judgement.model) + (" (cached)" if judgement.is_cached else ""),
                    *(f"{number:.2f}" for number in judgement.value.as_tuple()),
                    _bar(judgement.value.falsehood, found.threshold),
                )
        if len(layer.evaluations) != 1:
            how = "merged" if layer.evaluations else "default, not judged"
            numbers = (f"{number:.2f}" for number in layer.value.as_tuple())
            table.add_row(layer.name, how, "", *numbers, "", style="bold")
    return table


def _bar(falsehood: float, threshold: float) -> str:
    filled = round(falsehood * 10)
    colour = "red" if falsehood >= threshold else "green"
    return f"[{colour}]{'█' * filled}[/][dim]{'░' * (10 - filled)}[/]"


def _show_cost(metrics: ReciprocityMetrics, out: Console) -> None:
    if metrics.usage.calls or metrics.cache_hits:
        out.print(
            f"{counted(metrics.usage.calls, 'call')}, "
            f"{counted(metrics.usage.input_tokens, 'token')} in, "
            f"{metrics.usage.output_tokens:,} out, {cost_text(metrics.usage)}, "
            f"{metrics.cache_hits} from the cache"
        )
    report = metrics.cascade
    if report is not None:
        out.print(
            f"passed on {report.passed_on} of {report.judged}, withheld {report.withheld}, "
            f"changed {report.changed}, doubt removed {report.doubt_removed:.2f}"
        )
