"""The embedded judge: the engine decides, model and features say why, on the published scale."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from promptguard.config import LOCAL_MODEL, ControllerConfig, PromptGuardConfig
from promptguard.conversation import Message, Role, messages_from
from promptguard.core.decision import Label
from promptguard.core.layers import ROLE_CONFUSION_F
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import ModelError
from promptguard.evaluators.reading import (
    BatchingReader,
    Engine,
    LayerInput,
    LayerReading,
    read_layers,
)
from promptguard.evaluators.registry import JUDGES, cannot_judge
from promptguard.model.artifact import open_artifact
from promptguard.model.readers import Readers, shared_readers
from promptguard.protocols import Encoder, LayerJudgement, LayerTask
from promptguard.signals import noisy_or
from promptguard.signals.structure import Feature, Findings, structure
from promptguard.state import RECENT_TURNS
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.verdict import Action, Verdict

KINDS = ("manipulative", "extractive", "harmful")
_OVERRIDES = (Feature.OVERRIDDEN_RULES, Feature.NEW_ROLE, Feature.FORCED_ANSWER)
_Finding = tuple[Neutrosophic, str]

DECISION = ROLE_CONFUSION_F
"""Falsehood of a probability at its shipped threshold: beyond it the trust mathematics sees role
confusion, and the balance is -1."""

# Probabilities are calibrated as if every other text were an attack. Most are not, so that up to
# four fifths of the threshold a probability means little.
_NEAR = (0.8, 0.3)
# Truth falls slowly while the judge leans to innocent, stays level where it is undecided and falls
# to 0 beyond the decision. With the published balance this makes a lone user layer reciprocal up
# to F = 0.44 and borderline from there to F = 0.6.
_TRUTH = ((0.0, 1.0), (0.3, 0.86), (0.42, 0.73), (0.6, 0.72), (DECISION, 0.6), (1.0, 0.0))
_FLOOR = 0.1  # no reading of a text alone is ever certain
_CLOSE, _SPLIT, _STRANGE, _CUT = 0.5, 0.25, 0.8, 0.45
# The bounds of falsehood that each decision of the engine leaves to the views: with the published
# balance, clearly reciprocal, borderline, and a detection.
_ALLOWED, _DOUBTED, _BLOCKED = (0.0, 0.38), (0.46, 0.6), (DECISION, 1.0)


class LocalJudge:
    """Judges with an Encoder; `thresholds` are its calibrated ones, one per kind of violation.

    With an `engine` its verdict decides: the evaluation types are views that stay within what it
    leaves them, and a judgement says whether the engine blocks. Work happens in a thread; layers
    that are asked for together are read together.
    """

    decision_threshold = DECISION

    def __init__(
        self,
        encoder: Encoder,
        thresholds: Mapping[str, float],
        *,
        engine: Engine | None = None,
        name: str = LOCAL_MODEL,
    ) -> None:
        if missing := [kind for kind in KINDS if kind not in thresholds]:
            raise ModelError(f"The model has no threshold for {missing[0]}; calibrate it.")
        self._thresholds = dict(thresholds)
        self._reader = BatchingReader(partial(read_layers, encoder, engine))
        self._name = name
        self._evaluations: Mapping[str, Callable[[LayerReading, LayerTask], _Finding]] = {
            "ayni_relational": self._ayni_relational,
            "relational_structure": self._relational_structure,
            "trust_trajectory": self._trust_trajectory,
        }

    @property
    def name(self) -> str:
        """The name it was configured under."""
        return self._name

    @property
    def evaluation_types(self) -> tuple[str, ...]:
        """The evaluation types that have a local implementation."""
        return tuple(self._evaluations)

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Return the judgement of one layer; the reasoning names findings, never the text."""
        evaluate = self._evaluations.get(task.evaluation_type)
        if evaluate is None:
            words = f"cannot judge {task.evaluation_type}; it knows {', '.join(self._evaluations)}"
            raise cannot_judge(task, self.name, words)
        layer = LayerInput(content=task.content, context=task.context)
        reading = await self._reader.read(layer)
        value, reasoning = evaluate(reading, task)
        verdict = reading.verdict
        return LayerJudgement(
            value=value,
            evaluation_type=task.evaluation_type,
            model=self.name,
            reasoning=reasoning,
            is_blocked=None if verdict is None else verdict.action is Action.BLOCK,
            finds=self._kind(reading),
        )

    def _ayni_relational(self, reading: LayerReading, _task: LayerTask) -> _Finding:
        semantic, structural = self._semantic(reading), self._structural(reading)
        grounds = [self._ground(reading, kind) for kind in ("manipulative", "harmful")]
        # With `>=` here and `>` in the other view, exactly one of them leads.
        falsehood = _within(reading.verdict, semantic, is_leading=semantic >= structural)
        return _valued(reading, falsehood), _sentence(grounds, reading)

    def _relational_structure(self, reading: LayerReading, _task: LayerTask) -> _Finding:
        semantic, structural = self._semantic(reading), self._structural(reading)
        grounds = [self._ground(reading, "extractive"), _features(reading.findings)]
        falsehood = _within(reading.verdict, structural, is_leading=structural > semantic)
        return _valued(reading, falsehood), _sentence(grounds, reading)

    def _semantic(self, reading: LayerReading) -> float:
        harmful = self._falsehood(reading, "harmful")
        if self._kind(reading) is Label.EXTRACTIVE:
            return harmful
        return max(harmful, self._falsehood(reading, "manipulative"))

    def _structural(self, reading: LayerReading) -> float:
        by_features = structure().falsehood(reading.findings)
        is_form = any(feature not in _OVERRIDES for feature in reading.findings.stated)
        if not is_form and self._kind(reading) is Label.MANIPULATIVE:
            return by_features
        return noisy_or((self._falsehood(reading, "extractive"), by_features))

    def _kind(self, reading: LayerReading) -> Label:
        """Say which of two kinds it is: the readers give most attacks a little of both.

        Counting both would make the two views one. What its words ask of the assistant comes
        before the readers: to tell what is hidden, then to drop its rules.
        """
        stated = reading.findings.stated
        if Feature.HIDDEN_TEXT in stated:
            return Label.EXTRACTIVE
        if any(feature in _OVERRIDES for feature in stated):
            return Label.MANIPULATIVE
        extractive, *others = (
            self._falsehood(reading, kind) for kind in ("extractive", "manipulative", "harmful")
        )
        return Label.EXTRACTIVE if extractive > max(others) else Label.MANIPULATIVE

    def _trust_trajectory(self, reading: LayerReading, task: LayerTask) -> _Finding:
        if Feature.EARLIER_AGREEMENT not in reading.findings.stated:
            return value_of(0.05, 0.15), "It makes no claim about an earlier agreement."
        if _has_no_reply(task):
            return value_of(_within(reading.verdict, 0.8), 0.15), (
                "It claims an earlier agreement; the record holds no reply that could be one."
            )
        # The doubt is above that from which a cascade asks its next judge, who can read the record.
        return value_of(_within(reading.verdict, 0.3), 0.45), (
            "It claims an earlier agreement; whether the record holds it was not judged."
        )

    def _falsehood(self, reading: LayerReading, kind: str) -> float:
        return falsehood_of(getattr(reading, kind), self._thresholds[kind])

    def _ground(self, reading: LayerReading, kind: str) -> str:
        probability, bar = getattr(reading, kind), self._thresholds[kind]
        sign = ">=" if probability >= bar else "<"
        return f"{kind} {probability:.2f} ({sign} {bar:.2f})"


@JUDGES.register(LOCAL_MODEL)
def open_local(folder: str, config: PromptGuardConfig) -> LocalJudge:
    """Open `local`, or `local:FOLDER` for a model of the same form as the shipped one."""
    readers = Readers(open_artifact(Path(folder))) if folder else shared_readers()
    judge = TurnJudge.open(engine_config(config), encoder=readers)
    return LocalJudge(
        readers,
        readers.artifact.manifest.thresholds,
        engine=partial(verdict_on, judge),
        name=f"{LOCAL_MODEL}:{folder}" if folder else LOCAL_MODEL,
    )


def engine_config(config: PromptGuardConfig) -> ControllerConfig:
    """Return the engine's configuration that decides for the embedded judge."""
    return ControllerConfig(
        store="memory:",
        preset=config.preset,
        false_positive_budget=config.false_positive_budget,
        max_chars=config.max_chars,
    )


def verdict_on(judge: TurnJudge, layer: LayerInput) -> Verdict:
    """Return the engine's verdict on a layer as the next turn of a session of its own.

    The messages of its context are judged before it, as many turns as a session remembers.
    """
    before = messages_from(json.loads(layer.context)) if layer.context else ()
    steps = steps_of((*before, Message(role=Role.USER, content=layer.content)))
    *_, (verdict, _) = walk(judge, steps[-RECENT_TURNS - 1 :])
    return verdict


def _within(verdict: Verdict | None, falsehood: float, *, is_leading: bool = False) -> float:
    """Return a view's falsehood within what the engine leaves it.

    The view that sees most is raised to the engine's decision; the others are only held below.
    """
    if verdict is None:
        return falsehood
    low, high = _DOUBTED
    if verdict.action is Action.ALLOW:
        low, high = _ALLOWED
    elif verdict.action is Action.BLOCK:
        low, high = _BLOCKED
    return min(max(falsehood, low if is_leading else 0.0), high)


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


def _has_no_reply(task: LayerTask) -> bool:
    """Return whether the record is complete and holds no reply of the assistant."""
    if not task.context:
        return task.turn == 0
    try:
        messages = json.loads(task.context)
    except ValueError:
        return False
    roles = [item.get("role") for item in messages if isinstance(item, dict)]
    return roles.count("user") >= task.turn and "assistant" not in roles


def falsehood_of(probability: float, threshold: float) -> float:
    """Return a falsehood that grows with the probability and is 0.65 at its threshold."""
    # At 0 or 1 two knots of the line would coincide.
    bar = min(max(threshold, 1e-6), 1.0 - 1e-6)
    near, falsehood = _NEAR
    return _along(((0.0, 0.0), (near * bar, falsehood), (bar, DECISION), (1.0, 1.0)), probability)


def truth_of(falsehood: float) -> float:
    """Return the truth that goes with a falsehood."""
    return _along(_TRUTH, falsehood)


def indeterminacy_of(
    falsehood: float,
    *,
    disagreement: float = 0.0,
    familiarity: float = 1.0,
    is_truncated: bool = False,
) -> float:
    """Return how far the value is undecided, in [0.1, 1].

    Each reason takes its share of the certainty that is left: closeness to the decision,
    windows that disagree, characters that the vocabulary does not know, text that was not read.
    """
    width = DECISION if falsehood < DECISION else 1.0 - DECISION
    closeness = (1.0 - abs(falsehood - DECISION) / width) ** 2
    certainty = 1.0 - _FLOOR
    certainty *= 1.0 - _CLOSE * closeness
    certainty *= 1.0 - _SPLIT * disagreement
    certainty *= 1.0 - _STRANGE * (1.0 - familiarity)
    return 1.0 - (certainty * (1.0 - _CUT) if is_truncated else certainty)


def value_of(falsehood: float, indeterminacy: float) -> Neutrosophic:
    """Return the value of a layer with this falsehood."""
    return Neutrosophic(truth_of(falsehood), min(1.0, max(0.0, indeterminacy)), falsehood)


def _along(knots: Sequence[tuple[float, float]], at: float) -> float:
    if at <= knots[0][0]:
        return knots[0][1]
    if at >= knots[-1][0]:
        return knots[-1][1]
    index = bisect_right([x for x, _ in knots], at)
    (x0, y0), (x1, y1) = knots[index - 1], knots[index]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
