"""Embedding vectors and their compact text form."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
_GAIN = 4.0  # components of a unit vector of 384 rarely exceed a quarter


def pack_vector(vector: Vector) -> str:
    """Return a unit vector as base64 of signed bytes: 384 numbers in 512 characters."""
    # Not -128: a symmetric range keeps opposite vectors opposite.
    scaled = np.clip(np.rint(vector * 127.0 * _GAIN), -127, 127).astype(np.int8)
    return base64.b64encode(scaled.tobytes()).decode("ascii")


def unpack_vector(packed: str) -> Vector:
    """Return the unit vector that `pack_vector` stored, or an empty one for an empty string."""
    if not packed:
        return np.zeros(0, dtype=np.float32)
    raw = np.frombuffer(base64.b64decode(packed), dtype=np.int8).astype(np.float32)
    # Rounding and clipping changed the length; this also takes the gain out again.
    norm = float(np.linalg.norm(raw))
    return raw / norm if norm else raw


def readable_vector(packed: str) -> Vector:
    """Return a stored vector; one that cannot be read is as good as none."""
    try:
        return unpack_vector(packed)
    except ValueError:
        return np.zeros(0, dtype=np.float32)


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine of two vectors, 0 where one is empty or of another length."""
    if left.size == 0 or left.size != right.size:
        return 0.0
    scale = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.dot(left, right)) / scale if scale else 0.0


def packed_cosine(left: str, right: str) -> float:
    """Return the cosine of two packed vectors; an unreadable one is as good as none."""
    return cosine(readable_vector(left), readable_vector(right))


def packed_mean(packed: Sequence[str], weights: Sequence[float]) -> str:
    """Return the weighted mean of the packed vectors that have the size of the last.

    Empty where all of them are.
    """
    pairs = zip(map(readable_vector, packed), weights, strict=True)
    # Turns judged without the model have no vector, and must not pull the mean to zero.
    known = [(vector, weight) for vector, weight in pairs if vector.size]
    if not known:
        return ""
    # A stored session may hold vectors of an earlier model beside those of the present one.
    size = known[-1][0].size
    vectors, spans = zip(*(pair for pair in known if pair[0].size == size), strict=True)
    return pack_vector(np.average(np.stack(vectors), axis=0, weights=spans).astype(np.float32))
