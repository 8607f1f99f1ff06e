"""A run's folder: its plan, its log, its scores; complete after every conversation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from promptguard.errors import ConfigError, DataError
from promptguard.probe.learning import Scores, scores_from_json, scores_to_json
from promptguard.probe.record import ProbeRecord, record_from_json, record_to_json
from promptguard.probe.runner import ProbePlan, ProbeStep

LOG, PLAN, SCORES = "conversations.jsonl", "run.json", "scores.json"


class Journal:
    """The files of one run in `folder`; scores are also kept in `scores` for later runs."""

    def __init__(self, folder: Path, *, scores: Path | None = None) -> None:
        self.folder = folder
        self._log = folder / LOG
        self._plan = folder / PLAN
        self._scores = scores or folder / SCORES

    @property
    def is_begun(self) -> bool:
        """Whether a run has begun here."""
        return self._plan.exists()

    def begin(self, plan: ProbePlan, model: str) -> ProbePlan:
        """Begin a run; returns the plan with the scores that earlier runs left.

        A run that logged nothing never reached its model: it is begun anew.
        """
        if self.is_begun and self.records():
            raise ConfigError(
                f"{self.folder} holds a run already; resume it or choose another folder."
            )
        if self._scores.exists():
            plan = replace(plan, scores=scores_from_json(self._scores.read_text(encoding="utf-8")))
        self.folder.mkdir(parents=True, exist_ok=True)
        body = {**_settings(plan, model), "scores": json.loads(scores_to_json(plan.scores))}
        _replace(self._plan, json.dumps(body, indent=2) + "\n")
        return plan

    def resume(self, plan: ProbePlan, model: str) -> tuple[ProbePlan, tuple[ProbeRecord, ...]]:
        """Return the plan with the scores the run began with, and what it has done.

        More conversations than before may be asked for; anything else must be as it was.
        """
        body = self._begun()
        asked = _settings(plan, model)
        changed = sorted(
            name for name in asked if name != "conversations" and body.get(name) != asked[name]
        )
        if changed:
            raise ConfigError(
                f"The run in {self.folder} began with other settings: {', '.join(changed)}."
            )
        scores = scores_from_json(json.dumps(body["scores"]))
        return replace(plan, scores=scores), self.records()

    def records(self) -> tuple[ProbeRecord, ...]:
        """Return the log; a last line cut off by a crash is dropped from it."""
        if not self._log.exists():
            return ()
        raw = self._log.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            with self._log.open("r+b") as log:
                log.truncate(len(whole))
        try:
            lines = whole.decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError:
            raise DataError(f"{self._log} is not UTF-8 text.") from None
        return tuple(
            record_from_json(line, where=f"{self._log} line {number}")
            for number, line in enumerate(lines, start=1)
        )

    def add(self, step: ProbeStep) -> None:
        """Log one conversation and keep the scores after it."""
        # A lone surrogate in an answer becomes its JSON escape instead of an error.
        with self._log.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(record_to_json(step.record) + "\n")
            log.flush()
            os.fsync(log.fileno())
        self.keep(step.scores)

    def keep(self, scores: Scores) -> None:
        """Keep the scores for later runs."""
        self._scores.parent.mkdir(parents=True, exist_ok=True)
        _replace(self._scores, scores_to_json(scores))

    def _begun(self) -> Mapping[str, object]:
        try:
            body = json.loads(self._plan.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{self.folder} holds no run to resume.") from None
        except ValueError:
            body = None
        if not isinstance(body, dict) or "scores" not in body:
            raise DataError(f"{self._plan} is broken; begin in another folder.")
        return body


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


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
