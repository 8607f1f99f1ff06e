"""Labelled data as `validate`, `calibrate` and `tune` read it: options and loading."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from promptguard.cli.service_checks import require_writable
from promptguard.cli.terminal import counting
from promptguard.counts import counted
from promptguard.errors import DataError, InputError

if TYPE_CHECKING:
    from promptguard.config import ControllerConfig
    from promptguard.validation.dataset import Case, Dataset, OnFault
    from promptguard.validation.score_trace import ScoreTrace

F = TypeVar("F", bound=Callable[..., Any])
MOST_FAULTS = 10


class Reading(TypedDict):
    """The options of `data_options` that say how the data is read."""

    fields: tuple[str, ...]
    labels: tuple[str, ...]
    on_bad_line: OnFault
    sample: int | None


def reading_options(command: F) -> F:
    """Add the options that say how labelled data is read."""
    options = (
        click.option("--field", "fields", multiple=True, help="NAME=FIELD of the data."),
        click.option("--label-value", "labels", multiple=True, help="SPELLING=LABEL in the data."),
        click.option(
            "--on-bad-line",
            type=click.Choice(["continue", "stop"]),
            default="continue",
            help="What to do with a line that cannot be read.",
        ),
        click.option(
            "--seed",
            type=int,
            default=0,
            show_default=True,
            help="Seed of whatever is drawn at random.",
        ),
        click.option("--sample", type=click.IntRange(min=1), help="Draw so many cases."),
    )
    # Decorators are applied from the last to the first; help lists them as written here.
    for option in reversed(options):
        command = option(command)
    return command


def data_options(command: F) -> F:
    """Add the options by which every command here reads its data and computes."""
    jobs = click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: the cores.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    return reading_options(jobs(as_json(command)))


def read_dataset(
    data: tuple[str, ...], reading: Reading, *, seed: int, turns_from: int = 0
) -> Dataset:
    """Load the data and say on stderr what was left out; DataError where nothing is left."""
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
        f"{counted(len(dataset.cases), 'case')}, {dataset.skipped:,} borderline skipped, "
        f"{counted(len(dataset.faults), 'bad line')}.",
        err=True,
    )
    for fault in dataset.faults[:MOST_FAULTS]:
        click.echo(f"  {fault.file}, line {fault.number}: {fault.reason}", err=True)
    if not dataset.cases:
        raise DataError("There is nothing to judge in the data.")
    return dataset


def score_traces(
    cases: tuple[Case, ...], config: ControllerConfig, jobs: int
) -> tuple[ScoreTrace, ...]:
    """Compute the signals' scores of every case, with progress shown and failures told."""
    from promptguard.validation.score_trace import record_traces

    with counting("scoring", len(cases)) as on_case:
        traces = record_traces(cases, config, jobs=jobs, on_case=on_case)
    tell_failed(len(cases) - len(traces), len(cases))
    return traces


def tell_failed(failed: int, given: int) -> None:
    """Say on stderr how many of the cases given could not be judged, if any."""
    if failed:
        click.echo(f"{failed:,} of {counted(given, 'case')} could not be judged.", err=True)


def require_output(path: Path, *, force: bool) -> None:
    """Refuse a file that exists unless `force`, or cannot be written: before minutes of work."""
    if path.exists() and not force:
        raise InputError(f"{path} exists already; --force replaces it.")
    require_writable(path)


def conversation_section(**settings: str | float | dict[str, float]) -> str:
    """Return the section of a configuration file that puts `settings` into effect."""
    # A JSON value is a YAML value, whatever characters a path holds.
    lines = [f"  {name}: {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(("conversation:", *lines))
