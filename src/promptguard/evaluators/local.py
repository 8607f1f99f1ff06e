"""The embedded judge: the shipped model and the structural features, offline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from promptguard.config import LOCAL_MODEL, PromptGuardConfig
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import EvaluationError, ModelError
from promptguard.evaluators.opening import JUDGES
from promptguard.evaluators.reading import LayerReading, ReadingDesk, read_layers
from promptguard.evaluators.scale import (
    DECISION,
    either,
    falsehood_of,
    indeterminacy_of,
    value_of,
)
from promptguard.evaluators.structure import Feature, Findings, structure
from promptguard.model.artifact import Artifact, open_artifact
from promptguard.model.encoder import LocalEncoder, shared_encoder
from promptguard.protocols import Encoder, LayerJudgement, LayerTask

KINDS = ("manipulative", "extractive", "harmful")
_Said = tuple[Neutrosophic, str]


class LocalJudge:
    """Judges with an Encoder; `thresholds` are its calibrated ones, one per kind of violation.

    Work happens in a thread; layers that are asked for together are read together.
    """

    decision_threshold = DECISION

    def __init__(
        self, encoder: Encoder, thresholds: Mapping[str, float], *, name: str = LOCAL_MODEL
    ) -> None:
        if missing := [kind for kind in KINDS if kind not in thresholds]:
            raise ModelError(f"The model has no threshold for {missing[0]}; calibrate it.")
        self._thresholds = dict(thresholds)
        self._desk = ReadingDesk(partial(read_layers, encoder))
        self._name = name
        self._ways: Mapping[str, Callable[[LayerReading, LayerTask], _Said]] = {
            "ayni_relational": self._what_is_asked,
            "relational_structure": self._who_speaks,
            "trust_trajectory": self._what_was_agreed,
        }

    @property
    def name(self) -> str:
        """The name it was configured under."""
        return self._name

    @property
    def evaluation_types(self) -> tuple[str, ...]:
        """The evaluation types that have a local implementation."""
        return tuple(self._ways)

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Return the judgement of one layer; the reasoning names findings, never the text."""
        way = self._ways.get(task.evaluation_type)
        if way is None:
            raise EvaluationError(
                f"{self.name} cannot judge {task.evaluation_type}; it knows "
                f"{', '.join(self._ways)}.",
                evaluation_type=task.evaluation_type,
                model=self.name,
                layer=task.layer,
            )
        value, reasoning = way(await self._desk.read(task.content), task)
        return LayerJudgement(
            value=value,
            evaluation_type=task.evaluation_type,
            model=self.name,
            reasoning=reasoning,
        )

    def _what_is_asked(self, reading: LayerReading, _task: LayerTask) -> _Said:
        kinds = ("manipulative", "harmful")
        falsehood = max(self._falsehood(reading, kind) for kind in kinds)
        grounds = [self._ground(reading, kind) for kind in kinds]
        return _valued(reading, falsehood), _sentence(grounds, reading)

    def _who_speaks(self, reading: LayerReading, _task: LayerTask) -> _Said:
        by_features = structure().falsehood(reading.findings)
        falsehood = either(self._falsehood(reading, "extractive"), by_features)
        grounds = [self._ground(reading, "extractive"), _features(reading.findings)]
        return _valued(reading, falsehood), _sentence(grounds, reading)

    def _what_was_agreed(self, reading: LayerReading, task: LayerTask) -> _Said:
        if Feature.EARLIER_AGREEMENT not in reading.findings.stated:
            return value_of(0.05, 0.15), "It makes no claim about an earlier agreement."
        if _nothing_was_said(task):
            return value_of(0.8, 0.15), (
                "It claims an earlier agreement; the record holds no reply that could be one."
            )
        return value_of(0.3, 0.45), (
            "It claims an earlier agreement; whether the record holds it was not judged."
        )

    def _falsehood(self, reading: LayerReading, kind: str) -> float:
        return falsehood_of(getattr(reading, kind), self._thresholds[kind])

    def _ground(self, reading: LayerReading, kind: str) -> str:
        probability, bar = getattr(reading, kind), self._thresholds[kind]
        sign = ">=" if probability >= bar else "<"
        return f"{kind} {probability:.2f} ({sign} {bar:.2f})"


@JUDGES.register(LOCAL_MODEL)
def open_local(folder: str, _config: PromptGuardConfig) -> LocalJudge:
    """Open `local`, or `local:FOLDER` for a model of the same form as the shipped one."""
    if not folder:
        encoder = shared_encoder()
        return LocalJudge(encoder, _thresholds(encoder.artifact))
    artifact = open_artifact(Path(folder))
    return LocalJudge(LocalEncoder(artifact), _thresholds(artifact), name=f"{LOCAL_MODEL}:{folder}")


def _thresholds(artifact: Artifact) -> Mapping[str, float]:
    return artifact.manifest.thresholds


def _valued(reading: LayerReading, falsehood: float) -> Neutrosophic:
    indeterminacy = indeterminacy_of(
        falsehood,
        disagreement=reading.disagreement,
        familiarity=reading.familiarity,
        is_truncated=reading.is_truncated,
    )
    return value_of(falsehood, indeterminacy)


def _features(found: Findings) -> str:
    names = [feature.value for feature in found.stated]
    names += [f"{feature.value} (quoted)" for feature in found.quoted]
    return f"features: {', '.join(names) or 'none'}"


def _sentence(grounds: list[str], reading: LayerReading) -> str:
    parts = list(grounds)
    if reading.decoded:
        parts.append(f"also read decoded from {', '.join(reading.decoded)}")
    if reading.is_truncated:
        parts.append("too long to be read whole")
    return "; ".join(parts) + "."


def _nothing_was_said(task: LayerTask) -> bool:
    """Say whether the record is complete and holds no word of the assistant."""
    if not task.context:
        return task.turn == 0
    try:
        messages = json.loads(task.context)
    except ValueError:
        return False
    said = [item for item in messages if isinstance(item, dict)]
    users = sum(item.get("role") == "user" for item in said)
    return users >= task.turn and not any(item.get("role") == "assistant" for item in said)
