"""`promptguard calibrate`: thresholds that keep a false-positive budget."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from promptguard.cli.labelled_data import (
    Reading,
    conversation_section,
    data_options,
    read_dataset,
    require_output,
    score_traces,
    tell_failed,
)
from promptguard.cli.stored import config_option
from promptguard.cli.terminal import counting
from promptguard.config import ControllerConfig, PromptGuardConfig, load_settings
from promptguard.counts import counted
from promptguard.errors import InputError
from promptguard.workers import default_jobs

if TYPE_CHECKING:
    from promptguard.validation.calibrate import CalibratedPriors, Conformal
    from promptguard.validation.dataset import Case


@click.command()
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=click.Path())
@click.option(
    "--fpr",
    "shares",
    multiple=True,
    type=click.FloatRange(0, 0.5, min_open=True),
    help="Share of harmless traffic that may be blocked; may be repeated (default 0.01).",
)
@click.option(
    "--target",
    type=click.Choice(["conversation", "prompt"]),
    default="conversation",
    help="What is calibrated: priors of conversations, or the threshold of prompts.",
)
@config_option
@click.option("--out", type=click.Path(dir_okay=False), help="Weights file to write.")
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
@data_options
def calibrate(
    data: tuple[str, ...],
    shares: tuple[float, ...],
    target: str,
    config_file: str | None,
    out: str | None,
    force: bool,
    jobs: int | None,
    seed: int,
    as_json: bool,
    **reading: Unpack[Reading],
) -> None:
    """Find thresholds that keep a false-positive budget on benign records like those in DATA."""
    from promptguard.risk.weights import named_weights
    from promptguard.validation.calibrate import with_budgets, write_weights

    if out is not None:
        if target == "prompt":
            raise InputError("--out writes weights of conversations; a prompt has a threshold.")
        require_output(Path(out), force=force)
    jobs = jobs or default_jobs()
    settings = load_settings(config_file)
    dataset = read_dataset(data, reading, seed=seed)
    # A false-positive budget is kept by benign records alone.
    benign = tuple(case for case in dataset.cases if not case.is_attack)
    budgets = tuple(sorted(set(shares or (0.01,))))
    if target == "prompt":
        bounds = _prompt_bounds(benign, settings.evaluation, budgets, jobs)
        _show_prompt(bounds, as_json=as_json)
        return
    found = _priors(benign, settings.conversation, budgets, jobs)
    if out is not None:
        note = (
            f"budgets calibrated on {counted(min(e.benign for e in found), 'benign conversation')}"
        )
        weights = named_weights(settings.conversation.weights)
        write_weights(with_budgets(weights, found, note), Path(out))
    _show_priors(found, out, as_json=as_json)


def _prompt_bounds(
    benign: tuple[Case, ...], config: PromptGuardConfig, budgets: tuple[float, ...], jobs: int
) -> list[Conformal]:
    from promptguard.validation.calibrate import calibrate_falsehood
    from promptguard.validation.contenders import Contender
    from promptguard.validation.runner import run_cases

    prompt = Contender(name="prompt", settings=config)
    with counting("judging", len(benign)) as on_case:
        outcomes = run_cases(benign, (prompt,), jobs=jobs, on_case=on_case)[prompt.name]
    tell_failed(sum(bool(outcome.error) for outcome in outcomes), len(outcomes))
    return [calibrate_falsehood(outcomes, share) for share in budgets]


def _priors(
    benign: tuple[Case, ...], config: ControllerConfig, budgets: tuple[float, ...], jobs: int
) -> list[CalibratedPriors]:
    from promptguard.risk.ledger import mode_named
    from promptguard.risk.weights import named_weights
    from promptguard.validation.calibrate import calibrate_priors

    weights = named_weights(config.weights)
    mode = mode_named(config.policy.block_from or "CRITICAL")
    found = []
    for share in budgets:
        # The budget decides which signals are computed and where the thorough reader is asked.
        held = config.model_copy(update={"false_positive_budget": share})
        traces = score_traces(benign, held, jobs)
        found.append(calibrate_priors(traces, weights, share, mode=mode))
    return found


def _show_prompt(bounds: list[Conformal], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"prompt": [asdict(bound) for bound in bounds]}, indent=1))
        return
    for bound in bounds:
        click.echo(f"decision_threshold: {bound.threshold:.6f}\n  {bound.statement}")


def _show_priors(found: list[CalibratedPriors], out: str | None, *, as_json: bool) -> None:
    from promptguard.validation.score_trace import Kind

    if as_json:
        plain = [{**asdict(each), "priors": each.priors.model_dump()} for each in found]
        click.echo(json.dumps({"conversation": plain, "weights": out}, indent=1))
        return
    for each in found:
        click.echo(
            f"false_positive_budget {each.share:g}: "
            f"{each.blocked} of {each.benign} given are blocked"
        )
        for kind, bound in each.bounds.items():
            prior = getattr(each.priors, kind)
            click.echo(f"  {kind.value} prior {prior:.4f}. {bound.statement}")
        if missing := [kind.value for kind in Kind if kind not in each.bounds]:
            click.echo(f"  Too few benign cases with a turn of: {', '.join(missing)}; kept.")
    if out is not None:
        # Without the budget the preset's own point would hold, and the file change nothing.
        section = conversation_section(
            weights=str(Path(out).absolute()), false_positive_budget=found[0].share
        )
        click.echo(f"Wrote {out}; put this into the configuration file:\n\n{section}")
