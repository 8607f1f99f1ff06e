"""`promptguard tune`: evidence weights fitted to labelled conversations."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from promptguard.cli import EXIT_CAUTION
from promptguard.cli.labelled_data import (
    Reading,
    conversation_section,
    data_options,
    read_dataset,
    require_output,
    score_traces,
)
from promptguard.cli.stored import config_option, with_store
from promptguard.cli.terminal import counting
from promptguard.config import ControllerConfig, load_settings
from promptguard.counts import counted
from promptguard.errors import InputError
from promptguard.workers import default_jobs

if TYPE_CHECKING:
    from promptguard.fil.fitting import FittedSettings
    from promptguard.validation.dataset import Case
    from promptguard.validation.tune import Tuned


@click.command()
@click.argument("data", nargs=-1, metavar="DATA...", type=click.Path())
@click.option("--store", "store_url", help="Take the labels given to stored sessions as well.")
@config_option
@click.option(
    "--out",
    default="weights.toml",
    show_default=True,
    type=click.Path(dir_okay=False),
    help="Weights file to write.",
)
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
@click.option("--temporal", is_flag=True, help="Fit how the rules look at earlier turns as well.")
@click.option(
    "--folds",
    type=click.IntRange(2, 20),
    default=5,
    show_default=True,
    help="Parts of the data that are held out in turn.",
)
@data_options
def tune(
    data: tuple[str, ...],
    store_url: str | None,
    config_file: str | None,
    out: str,
    force: bool,
    temporal: bool,
    folds: int,
    jobs: int | None,
    seed: int,
    as_json: bool,
    **reading: Unpack[Reading],
) -> None:
    """Fit evidence weights on labelled conversations; write them only where they are better.

    Exit code: 0 where OUT was written, 1 where the present weights are kept.
    """
    from promptguard.risk.weights import named_weights
    from promptguard.validation.calibrate import write_weights
    from promptguard.validation.tune import tune as fit

    if not data and store_url is None:
        raise InputError("Give labelled data, or --store for labels on stored sessions.")
    require_output(Path(out), force=force)
    config = load_settings(config_file).conversation
    cases = read_dataset(data, reading, seed=seed).cases if data else ()
    if store_url is not None:
        # Indexes go on after those of the data: an index is the place of a case in the whole set.
        cases = (*cases, *_feedback(store_url, 1 + max((c.index for c in cases), default=-1)))
    traces = score_traces(cases, config, jobs or default_jobs())
    with counting("fitting", folds + 1) as on_fold:
        tuned = fit(traces, named_weights(config.weights), seed=seed, folds=folds, on_fold=on_fold)
    if tuned.is_better:
        write_weights(tuned.weights, Path(out))
    fitted = _temporal(cases, config) if temporal else None
    _show(tuned, fitted, out, as_json=as_json)
    if not tuned.is_better:
        click.get_current_context().exit(EXIT_CAUTION)


def _show(tuned: Tuned, fitted: FittedSettings | None, out: str, *, as_json: bool) -> None:
    if as_json:
        body = {
            "present": asdict(tuned.before),
            "new": asdict(tuned.after),
            "certainty": tuned.certainty,
            "is_better": tuned.is_better,
            "attacks": tuned.attacks,
            "benign": tuned.benign,
            "weights": out if tuned.is_better else None,
        }
        if fitted is not None:
            body["temporal"] = {
                "settings": fitted.settings.model_dump(),
                "before": asdict(fitted.before),
                "after": asdict(fitted.after),
            }
        click.echo(json.dumps(body, indent=1))
        return
    for name, found in (("present", tuned.before), ("new, held out", tuned.after)):
        click.echo(
            f"{name:14} AUC {found.auc:.3f}  recall {found.recall_at_1:.3f} at 1 %, "
            f"{found.recall_at_5:.3f} at 5 % false positives"
        )
    click.echo(f"Better in {tuned.certainty:.1%} of redrawn samples.")
    if fitted is not None:
        _show_temporal(fitted)
    if not tuned.is_better:
        click.echo("Refused: not better than the present weights beyond chance.", err=True)
        return
    click.echo(
        f"Wrote {out}, version {tuned.weights.version}; put this into the configuration file:\n\n"
        + conversation_section(weights=str(Path(out).absolute()))
    )


def _temporal(cases: tuple[Case, ...], config: ControllerConfig) -> FittedSettings:
    from promptguard.fil.engine import FrozenInstinct
    from promptguard.validation.tune import fit_temporal

    layer = FrozenInstinct.load(extra_paths=config.rules, settings=config.temporal)
    return fit_temporal(cases, layer)


def _show_temporal(fitted: FittedSettings) -> None:
    for name, rates in (("rules, present", fitted.before), ("rules, fitted", fitted.after)):
        click.echo(
            f"{name:14} catch {rates.caught:.3f} of these attacks and flag "
            f"{rates.false_alarms:.3f} of these benign conversations"
        )
    if fitted.after != fitted.before:
        settings = fitted.settings.model_dump(exclude_none=True)
        click.echo("How the rules look at earlier turns, for the configuration file:\n")
        click.echo(conversation_section(temporal=settings))


def _feedback(url: str, first_index: int) -> tuple[Case, ...]:
    from promptguard.validation.dataset import labelled_sessions

    found = with_store(url, lambda store: labelled_sessions(store, first_index=first_index))
    click.echo(
        f"{counted(len(found.cases), 'labelled session')}, {found.without_text} more without text.",
        err=True,
    )
    return found.cases
