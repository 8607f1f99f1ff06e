"""Weights in half a byte: what is lost, what is exact, and what a damaged file gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from promptguard.errors import ModelError
from promptguard.model.packing import BLOCK, pack, read_packed, unpack, write_packed


def _weights(rows: int, columns: int, spread: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.clip(np.rint(rng.normal(0, spread, (rows, columns))), -127, 127).astype(np.int8)


@pytest.mark.parametrize("spread", [1, 5, 20, 40])
def test_little_of_a_matrix_is_lost(spread: float) -> None:
    weights = _weights(4 * BLOCK, 64, spread).astype(np.float64)
    back = unpack(*pack(weights.astype(np.int8))).astype(np.float64)
    lost = np.sqrt(np.square(weights - back).mean() / np.square(weights).mean())
    assert lost < 0.14


def test_small_weights_come_back_exactly() -> None:
    weights = np.random.default_rng(1).integers(-8, 8, (BLOCK, 10)).astype(np.int8)
    assert (unpack(*pack(weights)) == weights).all()


def test_the_whole_range_of_int8_can_be_told_apart() -> None:
    weights = np.tile(np.array([[-128], [112], [0], [-16]], dtype=np.int8), (BLOCK // 4, 2))
    assert (unpack(*pack(weights)) == weights).all()


def test_one_block_does_not_spoil_its_neighbours() -> None:
    weights = np.vstack([np.full((BLOCK, 2), 120), np.full((BLOCK, 2), 3)]).astype(np.int8)
    back = unpack(*pack(weights))
    assert (back[BLOCK:] == 3).all()


@pytest.mark.parametrize("shape", [(BLOCK + 1, 2), (BLOCK, 3)])
def test_a_matrix_that_cannot_be_cut_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="blocks"):
        pack(np.zeros(shape, dtype=np.int8))


def test_a_file_gives_matrices_and_tables_back(tmp_path: Path) -> None:
    matrix, table = _weights(2 * BLOCK, 6, 2), _weights(10, 2 * BLOCK, 2)
    write_packed(tmp_path / "w.npz", {"m": pack(matrix)}, {"t": table})
    found = read_packed(tmp_path / "w.npz")
    assert set(found) == {"m", "t"}
    assert found["m"].shape == matrix.shape
    assert found["t"].shape == table.shape
    assert found["t"].flags.c_contiguous
    assert np.abs(found["t"].astype(int) - table).max() <= 1


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_damaged_file_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.npz").write_bytes(content)
    with pytest.raises(ModelError, match="model verify"):
        read_packed(tmp_path / "w.npz")


def test_a_file_without_its_steps_says_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **{"m.codes": np.zeros((BLOCK, 2), dtype=np.uint8)})
    with pytest.raises(ModelError, match="KeyError"):
        read_packed(tmp_path / "w.npz")
