"""Vectors survive their compact form, and what is missing is never near anything."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.vector import (
    Vector,
    cosine,
    pack_vector,
    packed_cosine,
    packed_mean,
    unpack_vector,
)

SIZE = 384
EMPTY: Vector = np.zeros(0, dtype=np.float32)


def unit(seed: int, size: int = SIZE) -> Vector:
    drawn = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.float32)


@given(st.integers(0, 2**32 - 1))
def test_a_packed_vector_points_where_it_did(seed: int) -> None:
    """Signed bytes lose no more than a thousandth of the direction."""
    vector = unit(seed)
    packed = pack_vector(vector)
    assert len(packed) == 4 * SIZE // 3
    assert cosine(vector, unpack_vector(packed)) > 0.999
    assert float(np.linalg.norm(unpack_vector(packed))) == pytest.approx(1.0, abs=1e-5)


def test_packed_vectors_at_right_angles_are_not_alike() -> None:
    """Rounding to bytes turns neither towards the other."""
    axes = np.eye(2, SIZE, dtype=np.float32)
    assert packed_cosine(*map(pack_vector, axes)) == pytest.approx(0.0, abs=0.01)


def test_a_component_that_is_too_large_is_held_and_not_turned_around() -> None:
    """A byte that ran over would point the other way."""
    for sign in (1.0, -1.0):
        alone = np.zeros(8, dtype=np.float32)
        alone[3] = sign
        raw = np.frombuffer(base64.b64decode(pack_vector(alone)), dtype=np.int8)
        assert raw[3] == 127 * sign
        assert unpack_vector(pack_vector(alone))[3] == sign


def test_nothing_unpacks_to_nothing_and_zeros_to_zeros() -> None:
    """A turn without an embedding has an empty one; no division by zero."""
    assert unpack_vector("").size == 0
    zeros = unpack_vector(pack_vector(np.zeros(8, dtype=np.float32)))
    assert zeros.tolist() == [0.0] * 8


@pytest.mark.parametrize("packed", ["a", "AAA", "AAAAA", "é"])
def test_a_broken_packed_vector_is_a_value_error(packed: str) -> None:
    """Whoever reads a stored one can tell it from a vector."""
    with pytest.raises(ValueError):  # noqa: PT011  the library words it
        unpack_vector(packed)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (EMPTY, EMPTY),
        (EMPTY, unit(1)),
        (unit(1), EMPTY),
        (unit(1, 8), unit(1, 16)),
        (np.zeros(8, dtype=np.float32), unit(1, 8)),
    ],
)
def test_what_cannot_be_compared_is_not_alike(left: Vector, right: Vector) -> None:
    """Empty, of another size, without direction."""
    assert cosine(left, right) == 0.0


def test_the_cosine_is_of_directions_alone() -> None:
    """Length does not matter; opposite is -1 and the same is 1."""
    vector = unit(5)
    assert cosine(vector, 3 * vector) == pytest.approx(1.0)
    assert cosine(vector, -vector) == pytest.approx(-1.0)
    assert packed_cosine(pack_vector(vector), pack_vector(vector)) == pytest.approx(1.0)
    assert packed_cosine("", pack_vector(vector)) == 0.0


def test_a_mean_lies_nearer_to_what_weighs_more() -> None:
    """Turns that are remembered together count by how many they are."""
    one, other = pack_vector(unit(1)), pack_vector(unit(2))
    mean = packed_mean((one, other), (9, 1))
    assert packed_cosine(mean, one) > packed_cosine(mean, other)
    assert packed_cosine(packed_mean((one, other), (1, 9)), other) > 0.9
    assert packed_cosine(packed_mean((one, one), (1, 1)), one) > 0.999


def test_a_mean_leaves_out_what_is_missing() -> None:
    """Of empty ones only, it is empty itself."""
    one = pack_vector(unit(1))
    assert packed_mean(("", one), (5, 1)) == packed_mean((one,), (1,))
    assert packed_cosine(packed_mean(("", one), (5, 1)), one) > 0.999
    assert packed_cosine("", one) == 0.0
    assert packed_mean(("", ""), (1, 1)) == ""
    with pytest.raises(ValueError, match="zip"):
        packed_mean((one,), (1, 2))


def test_a_mean_leaves_out_vectors_of_another_model() -> None:
    """A stored session keeps its topics over a change of the model; the present one counts."""
    old, new = pack_vector(unit(1, size=256)), pack_vector(unit(2))
    assert packed_mean((old, new), (9, 1)) == packed_mean((new,), (1,))
    assert packed_mean((old, ""), (9, 1)) == packed_mean((old,), (1,))
