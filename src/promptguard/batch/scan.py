"""A scan: records in, one line of JSON out for each, and never the same record judged twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TextIO

from promptguard.batch.ray import judge_on_ray, require_ray
from promptguard.batch.verdict_lines import Opener, is_error, lines_of, lost_line, open_judge
from promptguard.config import ControllerConfig
from promptguard.errors import InputError
from promptguard.records import Fault, Record
from promptguard.runs.journal import Journal, judging_hash
from promptguard.workers import map_ordered


class Engine(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCounts:
    """How many records were kept from before, judged now, flagged, and not judgeable."""

    resumed: int = 0
    judged: int = 0
    flagged: int = 0
    failed: int = 0

    def with_line(self, line: str, *, is_old: bool = False) -> ScanCounts:
        """Return the counts with one more line."""
        body = json.loads(line)
        has_failed = "error" in body
        return ScanCounts(
            resumed=self.resumed + int(is_old),
            judged=self.judged + int(not is_old and not has_failed),
            flagged=self.flagged + int(bool(body.get("flagged"))),
            failed=self.failed + int(has_failed),
        )


class StreamOutput:
    """Where lines are written: a stream that keeps none, such as standard output."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, records: Iterator[Record | Fault]) -> Sequence[str]:  # noqa: ARG002  none kept
        """Return the lines that are kept, having drawn their records from `records`."""
        return ()

    def add(self, line: str) -> None:
        """Write one line through."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Write no more; the stream is not ours and stays open."""


class FileOutput:
    """Lines in a file, with the configuration that made them in `FILE.run`.

    With `resume` the whole lines of the file are kept and their records not judged again, so
    that a log that grows is judged only where it is new; it is refused where the lines belong
    to other records or another configuration. Errors at the end are tried again: the last line
    of a growing log may have been read before it was finished. Otherwise an existing file is
    refused, unless `overwrite`; it is replaced only when the first line is there.
    """

    def __init__(
        self, out: Path, config: ControllerConfig, *, resume: bool = False, overwrite: bool = False
    ) -> None:
        self._out = out
        # Lines of two configurations must not be mixed in one file.
        self._journal = Journal(out, {"configuration": judging_hash(config)})
        self._resume = resume
        self._is_open = False
        if not resume and not overwrite:
            self._journal.require_new()

    def start(self, records: Iterator[Record | Fault]) -> Sequence[str]:
        """Return the lines kept; InputError where they are of other records."""
        if not self._resume:
            return ()
        lines = self._journal.lines()
        bad = _errors_at_the_end(lines)
        kept = lines[: len(lines) - bad]
        for line in kept:
            # Compared before anything is opened for writing, so that a refusal changes nothing.
            _require_same(line, next(records, None), self._out)
        self._journal.resume()
        self._is_open = True
        self._journal.drop_last(bad)
        return kept

    def add(self, line: str) -> None:
        """Write one line through to the file."""
        if not self._is_open:
            # Only with the first line: a model that cannot be loaded leaves the earlier output.
            self._journal.begin(overwrite=True)
            self._is_open = True
        self._journal.add(line)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


def scan(
    records: Iterable[Record | Fault],
    config: ControllerConfig,
    output: FileOutput | StreamOutput,
    *,
    jobs: int = 1,
    engine: Engine = Engine.LOCAL,
    opener: Opener = open_judge,
    on_line: Callable[[ScanCounts], None] = lambda _: None,
) -> ScanCounts:
    """Write one line per record, in order, and return how it went.

    `on_line` gets the counts after every line. Stopped anywhere, the lines so far are kept.
    """
    if engine is Engine.RAY:
        # Before the output is opened: a missing engine must not cost an earlier file.
        require_ray()
    rest = iter(records)
    counts = ScanCounts()
    for line in output.start(rest):
        counts = counts.with_line(line, is_old=True)
    on_line(counts)
    judge = judge_on_ray if engine is Engine.RAY else judge_locally
    # Closing the iterator ends the processes, also after an interrupt.
    with closing(output), closing(judge(rest, config, jobs=jobs, opener=opener)) as lines:
        for line in lines:
            output.add(line)
            counts = counts.with_line(line)
            on_line(counts)
    return counts


def judge_locally(
    items: Iterable[Record | Fault],
    config: ControllerConfig,
    *,
    jobs: int = 1,
    opener: Opener = open_judge,
) -> Generator[str, None, None]:
    """Yield one line per item, in the order of the items, from several processes where asked.

    `opener` makes the judge of each process and must be picklable where there are several.
    """
    open_worker = partial(_open, opener, config)
    # One record at a time: an interrupt keeps whole chunks alone, and a record can take seconds.
    return map_ordered(open_worker, items, jobs=jobs, lost=lost_line, chunk=1)


def _open(
    opener: Opener, config: ControllerConfig
) -> Callable[[Sequence[Record | Fault]], Sequence[str]]:
    return partial(lines_of, opener(config))


def _errors_at_the_end(lines: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(is_error, reversed(lines)))


def _require_same(line: str, item: Record | Fault | None, out: Path) -> None:
    try:
        found = json.loads(line)["id"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{out} holds a line that no scan wrote; choose another file.") from None
    if item is None or found != item.id:
        raise InputError(f"{out} was written from other records; scan without --resume.")
