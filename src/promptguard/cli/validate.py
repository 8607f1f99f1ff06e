"""`promptguard validate`: how good configurations are on labelled records."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from promptguard.cli import EXIT_ALLOW, EXIT_CAUTION, EXIT_ERROR
from promptguard.cli.labelled_data import Reading, data_options, read_dataset
from promptguard.cli.terminal import counting
from promptguard.config import ControllerConfig, load_settings
from promptguard.conversation import printable
from promptguard.counts import counted
from promptguard.errors import InputError
from promptguard.workers import default_jobs

if TYPE_CHECKING:
    from promptguard.runs.report import OrderTest, Report
    from promptguard.validation.contenders import Contender, Outcomes
    from promptguard.validation.dataset import Case

REPORTS = ("report.json", "report.md", "report.html")


@click.command()
@click.argument("data", nargs=-1, required=True, metavar="DATASET...", type=click.Path())
@click.option("--config", "configs", multiple=True, type=click.Path(), help="Repeatable.")
@click.option("--dissect", is_flag=True, help="Measure the parts and every merge as well.")
@click.option(
    "--out",
    default="validation-report",
    type=click.Path(file_okay=False),
    help="Folder for the report.",
)
@click.option("--resume", is_flag=True, help="Go on with the run whose journal OUT holds.")
@click.option("--force", is_flag=True, help="Replace the report that OUT holds.")
@click.option("--turns-from", type=click.IntRange(0, 1), default=0, help="First attack_turn.")
@click.option("--rounds", type=click.IntRange(min=1), default=300, help="Bootstrap rounds.")
@data_options
@click.pass_context
def validate(
    ctx: click.Context,
    data: tuple[str, ...],
    configs: tuple[str, ...],
    dissect: bool,
    out: str,
    resume: bool,
    force: bool,
    turns_from: int,
    rounds: int,
    jobs: int | None,
    seed: int,
    as_json: bool,
    **reading: Unpack[Reading],
) -> None:
    """Measure configurations on labelled records and write report.json, .md and .html to OUT.

    Exit code: 0 where every record was judged, 1 where some could not be, 3 where none was.
    """
    from promptguard.runs.report import report_to_json
    from promptguard.validation.report import report_of
    from promptguard.validation.runner import RunJournal, manifest_of, run_cases

    # Before the work: an earlier report must not be lost after an hour of judging.
    folder = _folder(out, is_kept=not (resume or force))
    dataset = read_dataset(data, reading, seed=seed, turns_from=turns_from)
    contenders = _contenders(configs, dissect=dissect)
    manifest = manifest_of(dataset, contenders, seed=seed)
    journal = RunJournal(folder, manifest, resume=resume, overwrite=force)
    jobs = jobs or default_jobs()
    with counting("judging", len(dataset.cases)) as on_case:
        outcomes = run_cases(dataset.cases, contenders, jobs=jobs, journal=journal, on_case=on_case)
    report = report_of(
        dataset,
        contenders,
        outcomes,
        manifest,
        now=time.time(),
        seed=seed,
        rounds=rounds,
        orders=_orders(dataset.cases, contenders, outcomes, seed=seed, jobs=jobs),
        command=_command(ctx),
    )
    _write(report, folder)
    if as_json:
        click.echo(report_to_json(report), nl=False)
    else:
        _show(report, folder)
    if not any(summary.judged for summary in report.contenders):
        ctx.exit(EXIT_ERROR)
    has_failed = any(summary.failed for summary in report.contenders)
    ctx.exit(EXIT_CAUTION if has_failed else EXIT_ALLOW)


def _command(ctx: click.Context) -> str:
    """Return the command with the options that differ from their defaults."""
    words = ["promptguard", "validate"]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if isinstance(parameter, click.Argument):
            words += value or ()
        elif value != parameter.get_default(ctx) and value not in (None, (), False):
            for each in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0]] if each is True else [parameter.opts[0], str(each)]
    return printable(shlex.join(words))


def _contenders(configs: tuple[str, ...], *, dissect: bool) -> tuple[Contender, ...]:
    from promptguard.validation.contenders import dissected, engine

    named = [engine(Path(path).stem, load_settings(path)) for path in configs]
    if dissect:
        named[:1] = dissected(load_settings(configs[0] if configs else None))
    elif not named:
        named = [engine("engine", load_settings(None))]
    # The report tells contenders apart by their names alone.
    twice = [name for name, count in Counter(one.name for one in named).items() if count > 1]
    if twice:
        raise InputError(f"Two configurations would both be called {twice[0]!r}; rename a file.")
    return tuple(named)


def _orders(
    cases: tuple[Case, ...],
    contenders: tuple[Contender, ...],
    outcomes: Outcomes,
    *,
    seed: int,
    jobs: int,
) -> Mapping[str, OrderTest]:
    from promptguard.validation.dialogues import order_test, shuffled_cases
    from promptguard.validation.runner import run_cases

    engines = [one for one in contenders if isinstance(one.settings, ControllerConfig)]
    shuffled = shuffled_cases(cases, seed=seed)
    if not engines or not shuffled:
        return {}
    with counting("shuffled", len(shuffled)) as on_case:
        again = run_cases(shuffled, engines, jobs=jobs, on_case=on_case)
    return {one.name: order_test(outcomes[one.name], again[one.name]) for one in engines}


def _folder(out: str, *, is_kept: bool) -> Path:
    folder = Path(out)
    found = next((name for name in REPORTS if (folder / name).exists()), None)
    if is_kept and found is not None:
        raise InputError(
            f"{folder / found} exists already: --resume goes on with that run, --force replaces it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make {out}: {error.strerror}.") from None
    return folder


def _write(report: Report, folder: Path) -> None:
    from promptguard.runs.journal import replace_text
    from promptguard.runs.rendering import report_as_html, report_as_markdown
    from promptguard.runs.report import report_to_json

    texts = (report_to_json(report), report_as_markdown(report), report_as_html(report))
    for name, text in zip(REPORTS, texts, strict=True):
        replace_text(folder / name, text)


def _show(report: Report, folder: Path) -> None:
    from promptguard.runs.rendering import headline_rows

    for summary in report.contenders:
        click.echo(f"\n{summary.name}: {summary.judged} judged, {summary.failed} failed")
        for name, value in headline_rows(summary):
            click.echo(f"  {name:52} {value}")
        missed = counted(summary.missed.count, "attack")
        flagged = counted(summary.false_alarms.count, "benign record")
        click.echo(f"  {missed} missed and {flagged} flagged; the report lists them.")
    for pair in report.pairings:
        click.echo(
            f"{pair.first} against {pair.second}: only the first right {pair.only_first_right}, "
            f"only the second {pair.only_second_right}, p = {pair.p_value:.2g}"
        )
    for warning in report.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"\nWrote {folder / 'report.html'}, report.md and report.json.")
