"""`promptguard scan`: judge stored conversations, one line of JSON for each."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptguard.cli import EXIT_ALLOW, EXIT_CAUTION, EXIT_ERROR, EXIT_INTERRUPTED
from promptguard.cli.stored import config_option
from promptguard.cli.terminal import describing
from promptguard.config import ControllerConfig, load_settings
from promptguard.errors import InputError
from promptguard.records import FieldMap, input_files, read_records
from promptguard.workers import default_jobs

if TYPE_CHECKING:
    from promptguard.batch.scan import FileOutput, ScanCounts, StreamOutput

STDOUT = "-"


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path())
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), help="File to write, - for stdout."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: one per core.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", help="Where to work."
)
@config_option
@click.option("--resume", is_flag=True, help="Keep what OUT holds and judge only what is new.")
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
@click.option("--field", "fields", multiple=True, help="NAME=FIELD of the input; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@click.pass_context
def scan(
    ctx: click.Context,
    inputs: tuple[str, ...],
    out: str,
    jobs: int | None,
    engine: str,
    config_file: str | None,
    resume: bool,
    force: bool,
    fields: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge the conversations in INPUT: JSONL, JSON, CSV, Parquet (gzipped or not), - for stdin.

    OUT gets one line per record, in their order; a record that cannot be judged gets a line
    with `error`. Exit code: 0 where every record was judged, 1 where some could not be, 3 where
    none was, 130 after an interrupt.
    """
    from promptguard.batch.scan import Engine, ScanCounts
    from promptguard.batch.scan import scan as run

    config = load_settings(config_file).conversation
    files = input_files(inputs)
    if out != STDOUT:
        if any(_is_same(item, out) for item in inputs):
            raise InputError(f"{out} is an input as well; choose another file for --out.")
        # A folder that is read may hold the output of this very scan.
        files = tuple(file for file in files if not _is_same(file, out))
    records = read_records(files, FieldMap.parse(fields))
    output = _output(out, config, resume=resume, force=force)
    counts = ScanCounts()

    def on_line(now: ScanCounts) -> None:
        nonlocal counts
        counts = now
        show(_summary(now))

    try:
        with describing() as show:
            run(
                records,
                config,
                output,
                jobs=jobs or default_jobs(),
                engine=Engine(engine),
                on_line=on_line,
            )
    except KeyboardInterrupt:
        kept = "" if out == STDOUT else f" {out} keeps them; --resume goes on."
        click.echo(f"Interrupted. {_summary(counts)}{kept}", err=True)
        ctx.exit(EXIT_INTERRUPTED)
    if as_json:
        # Standard output holds the lines already.
        click.echo(json.dumps(asdict(counts)), err=out == STDOUT)
    else:
        click.echo(_summary(counts), err=True)
    # A pipeline must notice that it scanned the wrong file.
    if not counts.judged and not counts.resumed:
        ctx.exit(EXIT_ERROR)
    ctx.exit(EXIT_CAUTION if counts.failed else EXIT_ALLOW)


def _output(
    out: str, config: ControllerConfig, *, resume: bool, force: bool
) -> FileOutput | StreamOutput:
    from promptguard.batch.scan import FileOutput, StreamOutput

    if out != STDOUT:
        return FileOutput(Path(out), config, resume=resume, overwrite=force)
    if resume:
        raise InputError("Standard output keeps no lines to resume; name a file.")
    return StreamOutput(sys.stdout)


def _is_same(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _summary(counts: ScanCounts) -> str:
    found = f"{counts.flagged} flagged, {counts.failed} failed"
    if counts.resumed:
        return f"{counts.judged} judged now, {counts.resumed} before; in all {found}."
    return f"{counts.judged} judged, {found}."
