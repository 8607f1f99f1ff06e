"""Weights stored in half a byte each: what lets the large network fit a package.

A row of int8 weights is cut into blocks; each weight of a block is a code from -8 to 7 times the
block's step, a whole number from 1 to 16. Unpacking is a multiplication of small integers, exact on
every machine, and gives the int8 weights that the network is run with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from promptguard.errors import ModelError

BLOCK = 32
# The lowest code times the largest step is -128, which int8 just holds.
STEPS = 16
_LOWEST = 8
_CODES, _STEPS, _TURNED = ".codes", ".steps", ".turned"

Bytes = npt.NDArray[np.uint8]
Weights = npt.NDArray[np.int8]
Packed = tuple[Bytes, Bytes]


def pack(weights: Weights) -> Packed:
    """Return codes, two to a byte, and the step of each block that loses least.

    Blocks run down the first axis, along which a row of the matrix product is summed.
    """
    rows, columns = weights.shape
    if rows % BLOCK or columns % 2:
        raise ValueError(f"a matrix of {rows} x {columns} cannot be cut into blocks of {BLOCK}")
    blocks = weights.reshape(rows // BLOCK, BLOCK, columns).astype(np.float32)
    steps = best_steps(blocks)
    codes = np.clip(np.rint(blocks / steps[:, None]), -_LOWEST, _LOWEST - 1)
    return join(codes.astype(np.int8).reshape(rows, columns)), steps


def best_steps(blocks: npt.NDArray[np.float32]) -> Bytes:
    """Return the step that loses least for each column of each block."""
    best = np.full((blocks.shape[0], blocks.shape[2]), np.inf, dtype=np.float32)
    steps = np.ones(best.shape, dtype=np.uint8)
    for step in range(1, STEPS + 1):
        codes = np.clip(np.rint(blocks / step), -_LOWEST, _LOWEST - 1)
        loss = np.square(blocks - codes * step).sum(1)
        better = loss < best
        best[better], steps[better] = loss[better], step
    return steps


def join(codes: Weights) -> Bytes:
    """Return codes from -8 to 7, two to a byte."""
    halves = (codes + _LOWEST).astype(np.uint8)
    return (halves[:, 0::2] | (halves[:, 1::2] << 4)).astype(np.uint8)


def unpack(codes: Bytes, steps: Bytes) -> Weights:
    """Return the int8 weights."""
    rows, columns = codes.shape[0], codes.shape[1] * 2
    weights = np.empty((rows, columns), dtype=np.int8)
    weights[:, 0::2] = codes & 15
    weights[:, 1::2] = codes >> 4
    weights -= _LOWEST
    blocks = weights.reshape(rows // BLOCK, BLOCK, columns)
    # In place: unpacking decides how much memory loading takes at its peak.
    np.multiply(blocks, steps[:, None].astype(np.int8), out=blocks)
    return weights


def read_packed(path: Path) -> dict[str, Weights]:
    """Return the weights of a file by name; raises ModelError where it is not one."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {
                name.removesuffix(_CODES): _matrix(stored, name.removesuffix(_CODES))
                for name in stored.files
                if name.endswith(_CODES)
            }
    except (OSError, ValueError, KeyError, IndexError, EOFError, BadZipFile) as error:
        raise ModelError(
            f"The weights in {path.name} do not load ({type(error).__name__}); "
            "run `promptguard model verify`."
        ) from None


def write_packed(path: Path, matrices: Mapping[str, Packed], tables: Mapping[str, Weights]) -> None:
    """Write weights by name: matrices, packed, and tables, which are cut along their rows."""
    arrays: dict[str, Any] = {}
    for name, (codes, steps) in matrices.items():
        arrays[name + _CODES], arrays[name + _STEPS] = codes, steps
    for name, table in tables.items():
        arrays[name + _CODES], arrays[name + _STEPS] = pack(np.ascontiguousarray(table.T))
        arrays[name + _TURNED] = np.ones(1, dtype=np.uint8)
    np.savez(path, **arrays)


def _matrix(stored: Mapping[str, Any], name: str) -> Weights:
    weights = unpack(stored[name + _CODES], stored[name + _STEPS])
    return np.ascontiguousarray(weights.T) if name + _TURNED in stored else weights
