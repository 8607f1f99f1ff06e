"""A run's folder: its plan, its log, its scores; complete after every conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from promptguard.errors import ConfigError, DataError
from promptguard.probe.learning import Scores, scores_from_json, scores_to_json
from promptguard.probe.record import ProbeRecord, record_from_json, record_to_json
from promptguard.probe.runner import ProbePlan, ProbeStep
from promptguard.runs.journal import Journal, replace_text

LOG, PLAN, SCORES = "conversations.jsonl", "run.json", "scores.json"


class ProbeJournal:
    """The files of one run in `folder`; scores are also kept in `scores` for later runs."""

    def __init__(self, folder: Path, *, scores: Path | None = None) -> None:
        self.folder = folder
        self._scores = scores or folder / SCORES
        self._log = self._journal({})

    def begin(self, plan: ProbePlan, model: str) -> ProbePlan:
        """Begin a run; returns the plan with the scores that earlier runs left.

        A run that logged nothing never reached its model: it is begun anew.
        """
        # A log without a plan beside it is somebody else's file.
        if self._log.lines() or (self._log.holds_anything and not self._log.stored_settings()):
            raise ConfigError(
                f"{self.folder} holds a run already; resume it or choose another folder."
            )
        plan = replace(plan, scores=self._kept_scores(plan.scores))
        _make(self.folder)
        self._log = self._journal(
            # Kept with the plan: what was learned since must not change how a resumed run began.
            {**_settings(plan, model), "scores": json.loads(scores_to_json(plan.scores))}
        )
        self._log.begin(overwrite=True)
        return plan

    def resume(self, plan: ProbePlan, model: str) -> tuple[ProbePlan, tuple[ProbeRecord, ...]]:
        """Return the plan with the scores the run began with, and what it has done.

        More conversations than before may be asked for; anything else must be as it was.
        """
        stored = self._log.stored_settings()
        if stored is None:
            raise ConfigError(f"{self.folder} holds no run to resume.")
        if "scores" not in stored:
            raise DataError(f"{self._log.settings_file} is broken; begin in another folder.")
        scores = stored["scores"]
        self._log = self._journal({**_settings(plan, model), "scores": scores})
        self._log.resume(may_change=("conversations",))
        return replace(plan, scores=scores_from_json(json.dumps(scores))), self.records()

    def records(self) -> tuple[ProbeRecord, ...]:
        """Return the log, without a last line that was cut off by a crash."""
        return tuple(
            record_from_json(line, where=f"{self._log.path} line {number}")
            for number, line in enumerate(self._log.lines(), start=1)
        )

    def add(self, step: ProbeStep) -> None:
        """Log one conversation and keep the scores after it."""
        # The log first: scores can be learned again from it, and not the other way round.
        self._log.add(record_to_json(step.record))
        self.keep(step.scores)

    def keep(self, scores: Scores) -> None:
        """Keep the scores for later runs."""
        _make(self._scores.parent)
        try:
            replace_text(self._scores, scores_to_json(scores))
        except OSError as error:
            raise ConfigError(f"Cannot write {self._scores}: {error.strerror}.") from None

    def close(self) -> None:
        """Close the log; the run can be resumed."""
        self._log.close()

    def _kept_scores(self, otherwise: Scores) -> Scores:
        try:
            stored = self._scores.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return otherwise
        except OSError as error:
            raise ConfigError(f"Cannot read {self._scores}: {error.strerror}.") from None
        return scores_from_json(stored)

    def _journal(self, settings: Mapping[str, object]) -> Journal:
        # Each line has cost several calls of a model.
        return Journal(
            self.folder / LOG, settings, settings_file=self.folder / PLAN, is_synced=True
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot make {folder}: {error.strerror}.") from None


def _settings(plan: ProbePlan, model: str) -> dict[str, object]:
    topics = json.dumps([asdict(topic) for topic in plan.topics], sort_keys=True)
    return {
        "model": model,
        "conversations": plan.conversations,
        "seed": plan.seed,
        "epsilon": plan.epsilon,
        "max_tokens": plan.max_tokens,
        "topics": hashlib.sha256(topics.encode()).hexdigest()[:16],
    }
