"""`promptguard validate`, `calibrate` and `tune`: what labelled data says about the guard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from promptguard.cli import EXIT_CAUTION
from promptguard.errors import DataError, InputError

if TYPE_CHECKING:
    from promptguard.config import ControllerConfig
    from promptguard.validation.contenders import Contender
    from promptguard.validation.dataset import Case, Dataset
    from promptguard.validation.order import OrderTest
    from promptguard.validation.report import Report
    from promptguard.validation.runner import Outcomes
    from promptguard.validation.tape import Tape

F = TypeVar("F", bound=Callable[..., Any])


def _data_options(command: F) -> F:
    """Add the options by which every command here reads its data."""
    options = (
        click.option("--field", "fields", multiple=True, help="NAME=FIELD of the data."),
        click.option("--label-value", "labels", multiple=True, help="SPELLING=LABEL in the data."),
        click.option("--on-bad-line", type=click.Choice(["continue", "stop"]), default="continue"),
        click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: the cores."),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option("--sample", type=click.IntRange(min=1), help="Draw so many cases."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("data", nargs=-1, required=True, metavar="DATASET...")
@click.option("--config", "configs", multiple=True, type=click.Path(), help="Repeatable.")
@click.option("--dissect", is_flag=True, help="Measure the parts and every merge as well.")
@click.option("--out", default="validation-report", type=click.Path(file_okay=False))
@click.option("--resume", is_flag=True, help="Go on with the run whose journal OUT holds.")
@click.option("--turns-from", type=click.IntRange(0, 1), default=0, help="First attack_turn.")
@click.option("--rounds", type=click.IntRange(min=1), default=300, help="Bootstrap rounds.")
@_data_options
def validate(
    data: tuple[str, ...],
    configs: tuple[str, ...],
    dissect: bool,
    out: str,
    resume: bool,
    turns_from: int,
    rounds: int,
    jobs: int | None,
    seed: int,
    **reading: Any,
) -> None:
    """Measure configurations on labelled records and write report.json, .md and .html to OUT."""
    from promptguard.validation.manifest import manifest_of
    from promptguard.validation.report import report_of
    from promptguard.validation.runner import Journal, run_cases

    dataset = _dataset(data, seed=seed, turns_from=turns_from, **reading)
    contenders = _contenders(configs, dissect=dissect)
    manifest = manifest_of(dataset, contenders, seed=seed)
    folder = _folder(out)
    journal = Journal(folder / "outcomes.jsonl", manifest, resume=resume)
    with _progress("judging", len(dataset.cases)) as on_case:
        outcomes = run_cases(
            dataset.cases, contenders, jobs=_jobs(jobs), journal=journal, on_case=on_case
        )
    orders = _orders(dataset.cases, contenders, outcomes, seed=seed, jobs=_jobs(jobs))
    report = report_of(
        dataset,
        contenders,
        outcomes,
        manifest,
        now=time.time(),
        seed=seed,
        rounds=rounds,
        orders=orders,
    )
    _write(report, folder)
    _show(report, folder)


@click.command()
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--fpr", "shares", multiple=True, type=click.FloatRange(0, 0.5, min_open=True))
@click.option("--target", type=click.Choice(["conversation", "prompt"]), default="conversation")
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
@click.option("--out", type=click.Path(dir_okay=False), help="Weights file to write.")
@_data_options
def calibrate(
    data: tuple[str, ...],
    shares: tuple[float, ...],
    target: str,
    config_file: str | None,
    out: str | None,
    jobs: int | None,
    seed: int,
    **reading: Any,
) -> None:
    """Find thresholds that keep a false-positive budget on benign records like those in DATA."""
    from promptguard.config import load_settings

    settings = load_settings(config_file)
    dataset = _dataset(data, seed=seed, **reading)
    benign = tuple(case for case in dataset.cases if not case.is_attack)
    budgets = tuple(sorted(set(shares or (0.01,))))
    if target == "prompt":
        from promptguard.validation.contenders import Contender

        prompt = Contender(name="prompt", settings=settings.evaluation)
        _calibrate_prompt(benign, prompt, budgets, _jobs(jobs))
        return
    _calibrate_conversation(benign, settings.conversation, budgets, out, _jobs(jobs))


@click.command()
@click.argument("data", nargs=-1, metavar="DATA...")
@click.option("--store", "store_url", help="Take the labels given to stored sessions as well.")
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
@click.option("--out", default="weights.toml", show_default=True, type=click.Path(dir_okay=False))
@click.option("--folds", type=click.IntRange(2, 20), default=5, show_default=True)
@_data_options
def tune(
    data: tuple[str, ...],
    store_url: str | None,
    config_file: str | None,
    out: str,
    folds: int,
    jobs: int | None,
    seed: int,
    **reading: Any,
) -> None:
    """Fit evidence weights on labelled conversations; write them only where they are better.

    Exit code: 0 where OUT was written, 1 where the present weights are kept.
    """
    from promptguard.config import load_settings
    from promptguard.validation.tune import tune as fit
    from promptguard.validation.weights_file import write_weights

    if not data and store_url is None:
        raise InputError("Give labelled data, or --store for labels on stored sessions.")
    config = load_settings(config_file).conversation
    cases = _dataset(data, seed=seed, **reading).cases if data else ()
    if store_url is not None:
        cases = (*cases, *_feedback(store_url, 1 + max((c.index for c in cases), default=-1)))
    tapes = _tapes(cases, config, _jobs(jobs))
    with _progress("fitting", folds + 1) as on_fold:
        tuned = fit(tapes, _weights(config), seed=seed, folds=folds, on_fold=on_fold)
    for name, found in (("present", tuned.before), ("new, held out", tuned.after)):
        click.echo(
            f"{name:14} AUC {found.auc:.3f}  recall {found.recall_at_1:.3f} at 1 %, "
            f"{found.recall_at_5:.3f} at 5 % false positives"
        )
    click.echo(f"Better in {tuned.certainty:.1%} of redrawn samples.")
    if not tuned.is_better:
        click.echo("Refused: not better than the present weights beyond chance.", err=True)
        click.get_current_context().exit(EXIT_CAUTION)
    write_weights(tuned.weights, Path(out))
    click.echo(f"Wrote {out}, version {tuned.weights.version}; use it with `weights: {out}`.")


def _dataset(data: tuple[str, ...], *, seed: int, turns_from: int = 0, **reading: Any) -> Dataset:
    from promptguard.records import FieldMap
    from promptguard.validation.dataset import load_dataset

    dataset = load_dataset(
        data,
        fields=FieldMap.parse(reading["fields"], reading["labels"]),
        on_fault=reading["on_bad_line"],
        turns_from=turns_from,
        sample=reading["sample"],
        seed=seed,
    )
    click.echo(
        f"{len(dataset.cases)} cases, {dataset.skipped} borderline skipped, "
        f"{len(dataset.faults)} bad lines.",
        err=True,
    )
    for fault in dataset.faults[:10]:
        click.echo(f"  {fault.file}, line {fault.number}: {fault.reason}", err=True)
    if not dataset.cases:
        raise DataError("There is nothing to judge in the data.")
    return dataset


def _contenders(configs: tuple[str, ...], *, dissect: bool) -> tuple[Contender, ...]:
    from promptguard.config import load_settings
    from promptguard.validation.contenders import dissected, engine

    first = load_settings(configs[0] if configs else None)
    if dissect:
        parts = dissected(first)
        return (*parts, *(engine(_name(path), load_settings(path)) for path in configs[1:]))
    if not configs:
        return (engine("engine", first),)
    named = [engine(_name(path), load_settings(path)) for path in configs]
    if len({contender.name for contender in named}) < len(named):
        raise InputError("Two configurations have the same file name; rename one.")
    return tuple(named)


def _name(path: str) -> str:
    return Path(path).stem


def _orders(
    cases: tuple[Case, ...],
    contenders: tuple[Contender, ...],
    outcomes: Outcomes,
    *,
    seed: int,
    jobs: int,
) -> dict[str, OrderTest]:
    from promptguard.config import ControllerConfig
    from promptguard.validation.order import order_test, shuffled_cases
    from promptguard.validation.runner import run_cases

    engines = [one for one in contenders if isinstance(one.settings, ControllerConfig)]
    shuffled = shuffled_cases(cases, seed=seed)
    if not engines or not shuffled:
        return {}
    with _progress("shuffled", len(shuffled)) as on_case:
        again = run_cases(shuffled, engines, jobs=jobs, on_case=on_case)
    return {one.name: order_test(outcomes[one.name], again[one.name]) for one in engines}


def _folder(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make {out}: {error.strerror}.") from None
    return folder


def _write(report: Report, folder: Path) -> None:
    from promptguard.validation.markdown import markdown_of
    from promptguard.validation.page import page_of
    from promptguard.validation.report import report_to_json

    (folder / "report.json").write_text(report_to_json(report), encoding="utf-8")
    (folder / "report.md").write_text(markdown_of(report), encoding="utf-8")
    (folder / "report.html").write_text(page_of(report), encoding="utf-8")


def _show(report: Report, folder: Path) -> None:
    from promptguard.validation.markdown import headline_rows

    for summary in report.contenders:
        click.echo(f"\n{summary.name}: {summary.judged} judged, {summary.failed} failed")
        for name, value in headline_rows(summary):
            click.echo(f"  {name:44} {value}")
    for pair in report.pairings:
        click.echo(
            f"{pair.first} against {pair.second}: only the first right {pair.only_first_right}, "
            f"only the second {pair.only_second_right}, p = {pair.p_value:.2g}"
        )
    click.echo(f"\nWrote {folder / 'report.html'}, report.md and report.json.")


def _calibrate_prompt(
    benign: tuple[Case, ...], prompt: Contender, budgets: tuple[float, ...], jobs: int
) -> None:
    from promptguard.validation.calibrate import calibrate_falsehood
    from promptguard.validation.runner import run_cases

    with _progress("judging", len(benign)) as on_case:
        outcomes = run_cases(benign, (prompt,), jobs=jobs, on_case=on_case)[prompt.name]
    for share in budgets:
        bound = calibrate_falsehood(outcomes, share)
        click.echo(f"decision_threshold: {bound.threshold:.6f}\n  {bound.statement}")


def _calibrate_conversation(
    benign: tuple[Case, ...],
    config: ControllerConfig,
    budgets: tuple[float, ...],
    out: str | None,
    jobs: int,
) -> None:
    from promptguard.risk.policy import mode_named
    from promptguard.validation.calibrate import calibrate_prior, with_budgets
    from promptguard.validation.weights_file import write_weights

    weights = _weights(config)
    tapes = _tapes(benign, config, jobs)
    mode = mode_named(config.policy.block_from or "CRITICAL")
    found = [calibrate_prior(tapes, weights, share, mode=mode) for share in budgets]
    for each in found:
        click.echo(
            f"false_positive_budget {each.bound.share:g}: prior {each.prior:.4f} "
            f"({each.blocked} of {each.bound.n} given are blocked)\n  {each.bound.statement}"
        )
    if out is not None:
        note = f"budgets calibrated on {len(tapes)} benign conversations"
        write_weights(with_budgets(weights, found, note), Path(out))
        click.echo(f"Wrote {out}; use it with `weights: {out}`.")


def _weights(config: ControllerConfig) -> Any:
    from promptguard.risk.weights import load_weights, shipped_weights

    return load_weights(Path(config.weights)) if config.weights else shipped_weights()


def _tapes(cases: tuple[Case, ...], config: ControllerConfig, jobs: int) -> tuple[Tape, ...]:
    from promptguard.validation.tape import record_tapes

    with _progress("listening", len(cases)) as on_case:
        return record_tapes(cases, config, jobs=jobs, on_case=on_case)


def _feedback(url: str, first_index: int) -> tuple[Case, ...]:
    import asyncio

    from promptguard.stores import open_store
    from promptguard.validation.feedback import Feedback, labelled_sessions

    async def read() -> Feedback:
        store = open_store(url)
        try:
            return await labelled_sessions(store, first_index=first_index)
        finally:
            await store.close()

    found = asyncio.run(read())
    click.echo(
        f"{len(found.cases)} labelled sessions, {found.without_text} more without text.", err=True
    )
    return found.cases


def _jobs(given: int | None) -> int:
    from promptguard.workers import default_jobs

    return given or default_jobs()


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
