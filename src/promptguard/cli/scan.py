"""`promptguard scan`: judge stored conversations, one line of JSON for each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from promptguard.batch.run import Tally


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="File to write.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: one per core.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to work."
)
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
@click.option("--resume", is_flag=True, help="Keep what OUT holds and go on from there.")
@click.option("--field", "fields", multiple=True, help="NAME=FIELD of the input; repeatable.")
def scan(
    inputs: tuple[str, ...],
    out: str,
    jobs: int | None,
    engine: str,
    config_file: str | None,
    resume: bool,
    fields: tuple[str, ...],
) -> None:
    """Judge the conversations in INPUT: JSONL, JSON, CSV, Parquet (gzipped or not), - for stdin.

    OUT gets one line per record, in their order; a record that cannot be judged gets a line
    with `error`.
    """
    from promptguard.batch.run import Engine
    from promptguard.batch.run import scan as run
    from promptguard.config import load_settings
    from promptguard.records import FieldMap, input_files, read_records
    from promptguard.workers import default_jobs

    config = load_settings(config_file).conversation
    records = read_records(input_files(inputs), FieldMap.parse(fields))
    with _progress() as on_line:
        tally = run(
            records,
            config,
            Path(out),
            jobs=jobs or default_jobs(),
            engine=Engine(engine),
            resume=resume,
            on_line=on_line,
        )
    click.echo(_summary(tally), err=True)


def _summary(tally: Tally) -> str:
    before = f", {tally.resumed} taken up from before" if tally.resumed else ""
    return f"{tally.judged} judged, {tally.flagged} flagged, {tally.failed} failed{before}."


@contextmanager
def _progress() -> Iterator[Callable[[Tally], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("opening")
        yield lambda tally: bar.update(task, description=_summary(tally))
