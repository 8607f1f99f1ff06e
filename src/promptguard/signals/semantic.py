"""Signal `semantic`: what the embedded readers say of the message alone, and its cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.errors import DataError
from promptguard.model.reading import MessageReading
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS, either, read_tuning
from promptguard.vector import Vector, unpack_vector
from promptguard.verdict import SignalScore

_KINDS = ("manipulative", "extractive", "harmful")


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
class _Tuning:
    decoded_weight: float
    disguise_weight: float
    named_from: float
    cluster_from: float


@SIGNALS.register("semantic")
def semantic(ctx: TurnContext) -> SignalScore:
    """Return the probability of an attack in the message.

    A disguise adds in proportion to the risk of what it hid, so encoded data is no offence. The
    nearest intent cluster explains and never scores: beside the readers' word it adds nothing.
    """
    score = _own(ctx)
    if ctx.reading is not None and ctx.subjects.is_follow_up:
        score = max(score, 0.5)  # "go on" says nothing by itself, and nothing in its favour
    return _spoken(score, ctx.reading, _undone(ctx))


def _own(ctx: TurnContext) -> float:
    if ctx.reading is None:
        return 0.0
    tuning = _tuning()
    attack = ctx.reading.attack
    weights = (
        tuning.decoded_weight if ctx.views.decoded else 0.0,
        tuning.disguise_weight if ctx.views.disguises else 0.0,
    )
    return either((attack, attack * max(weights)))


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
        if value >= _tuning().named_from
    ]
    near = shipped_clusters().nearest(reading.embedding)
    if near is not None:
        parts |= {"near_attack": near.attack, "near_benign": near.benign}
        if near.similarity >= _tuning().cluster_from:
            notes = (f"nearest to {near.name} ({near.similarity:.2f})", *notes)
    reason = "; ".join((", ".join(named) or f"attack {reading.attack:.2f}", *notes))
    return SignalScore(name="semantic", score=score, reason=reason, parts=parts)


@cache
def _tuning() -> _Tuning:
    return read_tuning("semantic", _Tuning)
