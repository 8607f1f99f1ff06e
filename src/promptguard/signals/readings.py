"""What was read in the turn: by the readers, in the concepts it names, by the rules.

Signals `semantic`, `context`, `concepts` and `fil`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.errors import DataError
from promptguard.model.network import sigmoid
from promptguard.model.reading import MessageReading
from promptguard.protocols import FilReading, TurnContext
from promptguard.signals import SIGNALS, noisy_or, read_tuning
from promptguard.vector import Vector, unpack_vector
from promptguard.verdict import SignalScore

_KINDS = ("manipulative", "extractive", "harmful")
_NAMED_CONCEPTS = 4


class Cluster(BaseModel):
    """One entry of the file: the mean direction of `count` records, packed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    is_attack: bool
    count: int
    vector: str


class ClusterFile(BaseModel):
    """What `intent_clusters.json` holds; `model` is the version whose embeddings it is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: int
    provenance: str
    model: str
    clusters: tuple[Cluster, ...] = Field(min_length=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The nearest cluster, and the similarity in [0,1] to the nearest one of either side."""

    name: str
    similarity: float
    attack: float
    benign: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntentClusters:
    """Unit directions from the middle of all clusters, one row each; `attacks` marks rows."""

    model: str
    names: tuple[str, ...]
    attacks: npt.NDArray[np.bool_]
    middle: Vector
    directions: Vector

    def nearest(self, vector: Vector | None) -> Nearest | None:
        """Return where `vector` lies; None where it has no direction or another size.

        Cosines are taken from the middle: what all texts have in common tells nothing.
        """
        if vector is None or vector.shape != self.middle.shape:
            return None
        # All embeddings share a large common part, which would make every cosine alike.
        offset = vector - self.middle
        length = float(np.linalg.norm(offset))
        if not 0.0 < length < np.inf:
            return None
        cosines = self.directions @ (offset / np.float32(length))
        best, near = int(cosines.argmax()), np.clip(cosines, 0.0, 1.0)
        return Nearest(
            name=self.names[best],
            similarity=float(near[best]),
            attack=float(near[self.attacks].max()),
            benign=float(near[~self.attacks].max()),
        )


@cache
def shipped_clusters() -> IntentClusters:
    """Return the bundled clusters."""
    path = files("promptguard").joinpath("data/intent_clusters.json")
    return parse_clusters(path.read_text(encoding="utf-8"))


def parse_clusters(source: str) -> IntentClusters:
    """Read clusters from JSON; raises DataError that says how to make the file anew."""
    try:
        body = ClusterFile.model_validate(json.loads(source))
        vectors = np.stack([unpack_vector(cluster.vector) for cluster in body.clusters])
        attacks = np.array([cluster.is_attack for cluster in body.clusters])
    except (ValueError, ValidationError):
        raise DataError(
            "intent_clusters.json is broken; make it anew with training.intent_clusters."
        ) from None
    if attacks.all() or not attacks.any():
        raise DataError("intent_clusters.json needs clusters of attacks and of ordinary use.")
    middle: Vector = vectors.mean(axis=0)
    offsets = vectors - middle
    return IntentClusters(
        model=body.model,
        names=tuple(cluster.name for cluster in body.clusters),
        attacks=attacks,
        middle=middle,
        directions=offsets / np.linalg.norm(offsets, axis=1, keepdims=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SemanticTuning:
    decoded_weight: float
    disguise_weight: float
    named_from: float
    cluster_from: float


@SIGNALS.register("semantic")
def semantic(ctx: TurnContext) -> SignalScore:
    """Return the probability of an attack in the message.

    A disguise adds in proportion to the risk of what it hid, so encoded data is no offence. The
    nearest intent cluster explains and never scores: it adds nothing to what the readers find.
    """
    score = _own(ctx)
    if ctx.reading is not None and ctx.subjects.is_follow_up:
        score = max(score, 0.5)  # "go on" says nothing by itself, and nothing in its favour
    return _spoken(score, ctx.reading, _undone(ctx))


def _own(ctx: TurnContext) -> float:
    if ctx.reading is None:
        return 0.0
    tuning = _semantic_tuning()
    attack = ctx.reading.attack
    weights = (
        tuning.decoded_weight if ctx.views.decoded else 0.0,
        tuning.disguise_weight if ctx.views.disguises else 0.0,
    )
    return noisy_or((attack, attack * max(weights)))


def _undone(ctx: TurnContext) -> tuple[str, ...]:
    methods = dict.fromkeys((*(view.method for view in ctx.views.decoded), *ctx.views.disguises))
    return (f"disguised by {', '.join(methods)}",) if methods else ()


def _spoken(score: float, reading: MessageReading | None, notes: tuple[str, ...]) -> SignalScore:
    if reading is None:
        return SignalScore(name="semantic", score=0.0)
    parts = {kind: float(getattr(reading, kind)) for kind in _KINDS}
    named = [
        f"{kind} {value:.2f}"
        for kind, value in sorted(parts.items(), key=lambda item: -item[1])
        if value >= _semantic_tuning().named_from
    ]
    near = shipped_clusters().nearest(reading.embedding)
    if near is not None:
        parts |= {"near_attack": near.attack, "near_benign": near.benign}
        if near.similarity >= _semantic_tuning().cluster_from:
            notes = (f"nearest to {near.name} ({near.similarity:.2f})", *notes)
    reason = "; ".join((", ".join(named) or f"attack {reading.attack:.2f}", *notes))
    return SignalScore(name="semantic", score=score, reason=reason, parts=parts)


@cache
def _semantic_tuning() -> _SemanticTuning:
    return read_tuning("semantic", _SemanticTuning)


@SIGNALS.register("context")
def context(ctx: TurnContext) -> SignalScore:
    """Return the probability that answering this turn serves an attack.

    0 where no model is in use.
    """
    reading = ctx.context
    if reading is None:
        return SignalScore(name="context", score=0.0)
    talk = " in the light of the talk" if reading.turns > 1 else ""
    cut = ", older turns cut" if reading.is_truncated else ""
    reason = f"serves an attack {reading.turn:.2f}{talk}{cut}"
    parts = {"turns": float(reading.turns), "session": reading.session}
    return SignalScore(name="context", score=reading.turn, reason=reason, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptWeights:
    """Learned once over all languages: log-odds per concept and per pair of concept groups."""

    base: float
    concepts: Mapping[str, float]
    pairs: Mapping[str, float]

    def log_odds(self, names: Iterable[str]) -> float:
        """Return the log-odds of an attack given the concepts a text names."""
        found = sorted(names)
        # The pairs are a set, whose order changes from process to process; `fsum` is exact in any.
        single = math.fsum(self.concepts.get(name, 0.0) for name in found)
        return self.base + single + math.fsum(self.pairs.get(p, 0.0) for p in pairs_of(found))


def pairs_of(names: Iterable[str]) -> frozenset[str]:
    """Return the pairs worth a weight of their own: a hazard, evasion or protected thing with
    each means, intent and innocent frame beside it."""
    found = sorted(names)
    matters = [name for name in found if name.startswith(("hazard.", "evasion.", "protected."))]
    frames = [name for name in found if name.startswith(("means.", "intent.", "innocent."))]
    groups = {f"{a.split('.')[0]}+{b}" for a in matters for b in frames}
    return frozenset(groups | {f"{a}+{b.split('.')[0]}" for a in matters for b in frames})


@SIGNALS.register("concepts")
def concepts(ctx: TurnContext) -> SignalScore:
    """Return the probability of an attack by what is named, whatever the language."""
    weights = concept_weights()
    ordered = sorted(ctx.concepts, key=lambda name: (-weights.concepts.get(name, 0.0), name))
    reason = ", ".join(ordered[:_NAMED_CONCEPTS]) or "names nothing telling"
    return SignalScore(name="concepts", score=sigmoid(weights.log_odds(ordered)), reason=reason)


@cache
def concept_weights() -> ConceptWeights:
    """Return the shipped weights."""
    source = files("promptguard").joinpath("data/concept_weights.json").read_text(encoding="utf-8")
    try:
        body = json.loads(source)
        return ConceptWeights(
            base=float(body["base"]), concepts=dict(body["concepts"]), pairs=dict(body["pairs"])
        )
    except (ValueError, KeyError, TypeError):
        raise DataError("concept_weights.json is broken; make it anew with training.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilTuning:
    escalation_floor: float


@SIGNALS.register("fil")
def fil(ctx: TurnContext) -> SignalScore:
    """Return the harm score of the rules: 1 for a hard violation, a floor where harm escalates.

    A message that itself shows nothing scores 0, whatever came before: the past is judged by
    `continuation`, or a harmless turn could never follow a harmful one.
    """
    reading = ctx.fil
    if not (reading.violated or reading.features):
        return SignalScore(name="fil", score=0.0)
    score = 1.0 if reading.is_hard else reading.harm_score
    # Escalation is read from the past alone; a message without any harm must not get the floor.
    if reading.escalation and reading.harm_score > 0.0:
        score = max(score, _fil_tuning().escalation_floor)
    parts = {"harm": reading.harm_score, "counterfactual": reading.counterfactual_severity}
    return SignalScore(name="fil", score=score, reason=_fil_reason(reading), parts=parts)


def _fil_reason(reading: FilReading) -> str:
    violates = f"violates {', '.join(reading.violated)}" if reading.violated else ""
    found = (
        "hard violation" if reading.is_hard else "",
        "" if violates in reading.reason else violates,
        f"escalation: {', '.join(reading.escalation)}" if reading.escalation else "",
        reading.reason or ", ".join(reading.features),
    )
    return "; ".join(part for part in found if part) or "rules matched"


@cache
def _fil_tuning() -> _FilTuning:
    return read_tuning("fil", _FilTuning)
