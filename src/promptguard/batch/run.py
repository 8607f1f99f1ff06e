"""A scan: from files to a file, with what was done before taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from promptguard.batch.line import open_judge
from promptguard.batch.local import Opener, judge_locally
from promptguard.batch.ray import judge_on_ray
from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import ConfigError, InputError
from promptguard.records import Fault, Record


class Engine(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many records were taken up from before, judged now, flagged, and not judgeable."""

    resumed: int = 0
    judged: int = 0
    flagged: int = 0
    failed: int = 0

    def with_line(self, line: str, *, is_old: bool = False) -> Tally:
        """Return the tally with one more line counted."""
        body = json.loads(line)
        has_failed = "error" in body
        return Tally(
            resumed=self.resumed + int(is_old),
            judged=self.judged + int(not is_old and not has_failed),
            flagged=self.flagged + int(bool(body.get("flagged"))),
            failed=self.failed + int(has_failed),
        )


def scan(
    records: Iterable[Record | Fault],
    config: ControllerConfig,
    out: Path,
    *,
    jobs: int = 1,
    engine: Engine = Engine.LOCAL,
    resume: bool = False,
    opener: Opener = open_judge,
    on_line: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Write one line per record to `out`, in order, and return how it went.

    With `resume` the whole lines of `out` are kept and their records not judged again; it is
    refused where they belong to other records or another configuration. `on_line` hears the
    tally after every line.
    """
    rest = iter(records)
    output = _Output(out, config)
    tally = Tally()
    for line in output.begin(resume=resume):
        _require_same(line, next(rest, None), out)
        tally = tally.with_line(line, is_old=True)
    on_line(tally)
    judge = judge_on_ray if engine is Engine.RAY else judge_locally
    for line in judge(output.guarded(rest), config, jobs=jobs, opener=opener):
        output.add(line)
        tally = tally.with_line(line)
        on_line(tally)
    output.finish()
    return tally


class _Output:
    """The file of lines, and beside it while the scan lasts a stamp of its configuration."""

    def __init__(self, out: Path, config: ControllerConfig) -> None:
        self._out = out
        self._stamp = out.with_name(out.name + ".run")
        self._configuration = json.dumps({"configuration": config_hash(config)})
        self._is_finished = False
        self._file: BinaryIO | None = None

    def begin(self, *, resume: bool) -> list[str]:
        """Open the file and return the lines that it keeps."""
        try:
            done = self._kept() if resume and self._out.exists() else []
            self._file = self._out.open("ab" if done else "wb")
            if not self._is_finished:
                self._stamp.write_text(self._configuration, encoding="utf-8")
        except OSError as error:
            raise self._fault(error) from None
        return done

    def guarded(self, rest: Iterable[Record | Fault]) -> Iterator[Record | Fault]:
        """Pass on what is left to judge, unless the lines so far are of unknown making."""
        for item in rest:
            if self._is_finished:
                raise InputError(
                    f"{self._out} is a finished scan of fewer records; scan without --resume."
                )
            yield item

    def add(self, line: str) -> None:
        """Write one line through to the file."""
        assert self._file is not None
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._fault(error) from None

    def finish(self) -> None:
        """Close the file; nothing is left to resume."""
        if self._file is not None:
            self._file.close()
        self._stamp.unlink(missing_ok=True)

    def _kept(self) -> list[str]:
        done = _whole_lines(self._out)
        self._is_finished = bool(done) and not self._stamp.exists()
        if done and not self._is_finished:
            found = self._stamp.read_text(encoding="utf-8")
            if found != self._configuration:
                raise InputError(
                    "The scan was begun with another configuration; scan without --resume."
                )
        return done

    def _fault(self, error: OSError) -> ConfigError:
        return ConfigError(f"Cannot write {self._out}: {error.strerror}.")


def _whole_lines(out: Path) -> list[str]:
    """Return the lines that were written wholly, and cut off one that was not."""
    raw = out.read_bytes()
    end = raw.rfind(b"\n") + 1
    if end < len(raw):
        os.truncate(out, end)
    return raw[:end].decode().splitlines()


def _require_same(line: str, item: Record | Fault | None, out: Path) -> None:
    try:
        found = json.loads(line)["id"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{out} holds a line that no scan wrote; choose another file.") from None
    if item is None or found != item.id:
        raise InputError(f"{out} was written from other records; scan without --resume.")
