"""A run: every contender judges every case, with a journal to take the work up again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from promptguard.errors import DataError, InputError
from promptguard.validation.bench import Bench
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Case
from promptguard.validation.manifest import Manifest
from promptguard.validation.openers import Openers
from promptguard.validation.outcome import Outcome, outcomes_from_line, outcomes_to_line
from promptguard.workers import work_off

Outcomes = dict[str, tuple[Outcome, ...]]
"""A contender's name to its outcomes, in the order of the cases."""


def run_cases(
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    *,
    jobs: int = 1,
    openers: Openers | None = None,
    journal: Journal | None = None,
    on_case: Callable[[int], None] = lambda _: None,
) -> Outcomes:
    """Judge all cases with all contenders, at most `jobs` processes at once.

    What `journal` holds is not judged again; `on_case` hears how many cases are done.
    """
    done = [] if journal is None else journal.begin(cases)
    on_case(len(done))
    lines = work_off(
        partial(_open, tuple(contenders), openers or Openers()),
        cases[len(done) :],
        jobs=jobs,
        lost=partial(_lost, tuple(contender.name for contender in contenders)),
    )
    judged = list(done)
    for line in lines:
        if journal is not None:
            journal.add(line)
        judged.append(outcomes_from_line(line))
        on_case(len(judged))
    if journal is not None:
        journal.close()
    columns = list(zip(*judged, strict=True))
    names = [contender.name for contender in contenders]
    return dict(zip(names, columns or [()] * len(names), strict=True))


class Journal:
    """The outcomes of a run, line by line; the first line says which run they belong to."""

    def __init__(self, path: Path, manifest: Manifest, *, resume: bool) -> None:
        self._path = path
        self._head = json.dumps(asdict(manifest), sort_keys=True)
        self._resume = resume

    def begin(self, cases: Sequence[Case]) -> list[tuple[Outcome, ...]]:
        """Open the journal and return the outcomes that it keeps."""
        done = list(self._kept()) if self._resume and self._path.exists() else []
        for case, outcomes in zip(cases, done, strict=False):
            if outcomes[0].index != case.index:
                raise DataError(f"{self._path} is out of order; begin a new run.")
        if len(done) > len(cases):
            raise DataError(f"{self._path} holds more cases than the data; begin a new run.")
        self._file = self._path.open("ab" if done else "wb")
        if not done:
            self.add(self._head)
        return done

    def add(self, line: str) -> None:
        """Write one line through to the file."""
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _kept(self) -> Iterator[tuple[Outcome, ...]]:
        raw = self._path.read_bytes()
        end = raw.rfind(b"\n") + 1
        head, *lines = raw[:end].splitlines() or [b""]
        if head.decode("utf-8", "replace") != self._head:
            raise InputError(
                f"{self._path} belongs to a run with other data, settings or versions; "
                "run without --resume."
            )
        if end < len(raw):
            os.truncate(self._path, end)
        yield from map(outcomes_from_line, lines)


def _open(
    contenders: tuple[Contender, ...], openers: Openers
) -> Callable[[Sequence[Case]], Sequence[str]]:
    bench = Bench(contenders, openers)

    def judge(cases: Sequence[Case]) -> list[str]:
        return [outcomes_to_line(bench.judge(case)) for case in cases]

    return judge


def _lost(names: tuple[str, ...], case: Case) -> str:
    reason = "Judging ended its process; the record may be too large."
    return outcomes_to_line(
        tuple(Outcome(index=case.index, contender=name, error=reason) for name in names)
    )
