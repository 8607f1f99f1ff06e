"""Which kind of attack or of ordinary use a message lies nearest to, by its embedding."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.errors import DataError
from promptguard.signals.score import clipped
from promptguard.vector import Vector, unpack_vector


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
        near = self.directions @ (offset / np.float32(length))
        best = int(near.argmax())
        return Nearest(
            name=self.names[best],
            similarity=clipped(float(near[best])),
            attack=clipped(float(near[self.attacks].max())),
            benign=clipped(float(near[~self.attacks].max())),
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
