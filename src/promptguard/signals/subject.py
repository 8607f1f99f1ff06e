"""What a turn is about, and whether two turns are about the same thing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from promptguard.protocols import FilReading, Subject, Subjects
from promptguard.signals import read_tuning
from promptguard.signals.phrases import without_frames
from promptguard.state import SessionState
from promptguard.text.read import TextViews
from promptguard.text.vocabulary import key_terms
from promptguard.vector import Vector, unpack_vector

STEM, STEMMED_FROM = 5, 7
_NOWHERE: Vector = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    same_cosine: float
    follow_up_chars: int


def subjects_of(
    state: SessionState, views: TextViews, fil: FilReading, embedding: Vector | None
) -> Subjects:
    """Return what a turn and the remembered ones before it are about."""
    terms = subject_terms(text_terms(views.plain))
    vector = _NOWHERE if embedding is None else _unit(embedding)
    says_so = "follow_up" in fil.features
    return Subjects(
        now=Subject(terms=terms, vector=vector),
        past=tuple(
            Subject(terms=subject_terms(turn.key_terms), vector=vector_of(turn.embedding))
            for turn in state.recent
        ),
        is_follow_up=says_so and len(views.plain) <= _tuning().follow_up_chars,
    )


def is_same_subject(left: Subject, right: Subject) -> bool:
    """Return whether two turns share a key term or lie close together."""
    if left.terms & right.terms:
        return True
    return similarity(left.vector, right.vector) >= _tuning().same_cosine


def likeness(then: Subject, now: Subject) -> tuple[float, float]:
    """Return the cosine and the shared terms of two subjects, each in [0,1]."""
    return similarity(then.vector, now.vector), overlap(then.terms, now.terms)


def overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Dice coefficient of two sets of terms; 0 where one is empty."""
    if not left or not right:
        return 0.0
    return 2 * len(left & right) / (len(left) + len(right))


def similarity(left: Vector, right: Vector) -> float:
    """Return the cosine of unit vectors within [0,1]; 0 where one is missing or of another size."""
    if not left.size or left.shape != right.shape:
        return 0.0
    return min(1.0, max(0.0, float(left @ right)))


def mean_vector(vectors: Sequence[Vector]) -> Vector:
    """Return the direction of the mean of the vectors that have the size of the last."""
    known = [vector for vector in vectors if vector.size]
    if not known:
        return _NOWHERE
    same = [vector for vector in known if vector.size == known[-1].size]
    total = same[0].copy()
    for vector in same[1:]:
        total += vector
    return _unit(total)


@lru_cache(maxsize=4096)
def vector_of(packed: str) -> Vector:
    """Return a stored embedding, read-only; an unreadable one is as good as none."""
    try:
        vector = unpack_vector(packed)
    except ValueError:
        return _NOWHERE
    vector.flags.writeable = False
    return vector


@lru_cache(maxsize=4)
def text_terms(text: str) -> tuple[str, ...]:
    """Return `key_terms`, remembered for the few signals that ask within one turn."""
    return key_terms(text)


@lru_cache(maxsize=4096)
def subject_terms(terms: tuple[str, ...]) -> frozenset[str]:
    """Return the terms that name a subject, long words by their stem (chemistry, chemicals)."""
    return frozenset(map(_stem, without_frames(terms)))


def _stem(term: str) -> str:
    return term[:STEM] if len(term) >= STEMMED_FROM and term.isalpha() else term


def _unit(vector: Vector) -> Vector:
    """Return `vector` at length one; one without direction is as good as none."""
    length = math.sqrt(float(vector @ vector)) if vector.ndim == 1 else 0.0
    if not 0.0 < length < math.inf:
        return _NOWHERE
    unit: Vector = vector / np.float32(length)
    return unit


@cache
def _tuning() -> _Tuning:
    return read_tuning("subject", _Tuning)
