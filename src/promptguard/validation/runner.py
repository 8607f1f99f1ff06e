"""A run: every contender judges every case, with a journal to go on with after a stop."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import DataError, ModelError
from promptguard.model.artifact import bundled
from promptguard.risk.weights import named_weights
from promptguard.runs.journal import Journal, judging_hash
from promptguard.runs.report import Configured, Manifest
from promptguard.validation.contenders import (
    Contender,
    Openers,
    Outcome,
    Outcomes,
    outcomes_from_line,
    outcomes_to_line,
)
from promptguard.validation.dataset import Case, Dataset
from promptguard.validation.judging import CaseJudge, unjudged
from promptguard.workers import map_ordered

OUTCOMES, SETTINGS = "outcomes.jsonl", "run.json"
_USER_INFO = re.compile(r"//[^/?#\s\"]*@")
_PACKAGES = ("ayniguard", "numpy", "onnxruntime", "tokenizers")


def run_cases(
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    *,
    jobs: int = 1,
    openers: Openers | None = None,
    journal: RunJournal | None = None,
    on_case: Callable[[int], None] = lambda _: None,
) -> Outcomes:
    """Judge all cases with all contenders, at most `jobs` processes at once.

    What `journal` holds is not judged again; `on_case` gets the number of cases done.
    """
    judged = [] if journal is None else journal.start(cases)
    on_case(len(judged))
    names = tuple(contender.name for contender in contenders)
    lines = map_ordered(
        partial(_open, tuple(contenders), openers or Openers()),
        cases[len(judged) :],
        jobs=jobs,
        lost=partial(_lost, names),
        # An interrupt keeps whole chunks alone, and a case can take seconds.
        chunk=1,
    )
    try:
        with closing(lines):
            for line in lines:
                if journal is not None:
                    journal.lines.add(line)
                judged.append(outcomes_from_line(line))
                on_case(len(judged))
    finally:
        if journal is not None:
            journal.lines.close()
    # Without cases there are no columns at all, and yet an entry for each contender.
    columns = list(zip(*judged, strict=True))
    return dict(zip(names, columns or [()] * len(names), strict=True))


class RunJournal:
    """The outcomes of a run in a folder: `outcomes.jsonl`, and its manifest in `run.json`.

    A journal of another run is refused; without `resume` an existing one is replaced only where
    `overwrite`.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, *, resume: bool = False, overwrite: bool = False
    ) -> None:
        self.lines = Journal(folder / OUTCOMES, asdict(manifest), settings_file=folder / SETTINGS)
        self._resume = resume
        self._overwrite = overwrite

    def start(self, cases: Sequence[Case]) -> list[tuple[Outcome, ...]]:
        """Open the journal and return the outcomes that it keeps."""
        if not self._resume:
            self.lines.begin(overwrite=self._overwrite)
            return []
        done = [outcomes_from_line(line) for line in self.lines.resume()]
        for case, outcomes in zip(cases, done, strict=False):
            if outcomes[0].index != case.index:
                raise DataError(f"{self.lines.path} is out of order; begin a new run.")
        if len(done) > len(cases):
            raise DataError(f"{self.lines.path} holds more cases than the data; begin a new run.")
        return done


def manifest_of(dataset: Dataset, contenders: Sequence[Contender], *, seed: int) -> Manifest:
    """Return the manifest of a run that is about to begin."""
    try:
        model = bundled().manifest.identity
    except ModelError:
        model = "none"
    return Manifest(
        files=dataset.files,
        cases=_cases_hash(dataset),
        sample=dataset.sample,
        seed=seed,
        contenders=tuple(_configured(contender) for contender in contenders),
        model=model,
        versions=tuple((name, _version(name)) for name in _PACKAGES),
        python=platform.python_version(),
    )


def _open(
    contenders: tuple[Contender, ...], openers: Openers
) -> Callable[[Sequence[Case]], Sequence[str]]:
    judge = CaseJudge(contenders, openers)
    return lambda cases: [outcomes_to_line(judge.judge(case)) for case in cases]


def _lost(names: tuple[str, ...], case: Case) -> str:
    reason = "Judging ended its process; the record may be too large."
    return outcomes_to_line(unjudged(case, names, reason))


def _cases_hash(dataset: Dataset) -> str:
    """Return a hash of the cases that were taken, in their order."""
    digest = hashlib.sha256()
    for case in dataset.cases:
        # What they say too: the same files read by other fields are other cases.
        taken = (case.index, case.id, case.label, case.messages)
        digest.update(repr(taken).encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def _configured(contender: Contender) -> Configured:
    settings = contender.settings
    weights, digest = "", config_hash(settings)
    if isinstance(settings, ControllerConfig):
        digest = judging_hash(settings)
        used = named_weights(settings.weights)
        weights = f"{used.version} ({used.fitted_on})"
    # Without passwords, because a report is shown around: where sessions are stored judges nothing.
    shown = _USER_INFO.sub("//", settings.model_dump_json(exclude={"store"}))
    return Configured(name=contender.name, sha256=digest, settings=shown, weights=weights)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
