"""Weights stored in blocks of 256 with 4 or 6 bits each, unpacked to floats.

The two forms are those of GGUF files: `Q4_K` (a scale and a minimum for every 32 weights) and
`Q6_K` (a scale for every 16).
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 256
Q4_BYTES, Q6_BYTES = 144, 210


def unpacked(data: Tensor, form: str) -> Tensor:
    """Return the floats of a stored tensor, its last axis whole."""
    if form == "F32":
        return data.view(torch.float32) if data.dtype == torch.uint8 else data
    size, read = {"Q4_K": (Q4_BYTES, _q4), "Q6_K": (Q6_BYTES, _q6)}[form]
    rows = data.shape[0]
    return read(data.reshape(-1, size)).reshape(rows, -1)


def _halves(data: Tensor) -> Tensor:
    return data.contiguous().view(torch.float16).float()


def _q4(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    scale, least = _halves(blocks[:, 0:2]), _halves(blocks[:, 2:4])
    packed = blocks[:, 4:16].reshape(count, 3, 4)
    low, high, rest = packed[:, 0], packed[:, 1], packed[:, 2]
    # Six bits each: four of them in six, four more spread over the upper bits of those.
    scales = torch.cat([low & 63, (rest & 15) | ((low >> 6) << 4)], 1).float() * scale
    minima = torch.cat([high & 63, (rest >> 4) | ((high >> 6) << 4)], 1).float() * least
    stored = blocks[:, 16:].reshape(count, 4, 1, 32)
    values = torch.cat([stored & 15, stored >> 4], 2).reshape(count, 8, 32).float()
    return values * scales[:, :, None] - minima[:, :, None]


def _q6(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    low, high = (
        blocks[:, :128].reshape(count, 2, 1, 64),
        blocks[:, 128:192].reshape(count, 2, 1, 32),
    )
    scales = blocks[:, 192:208].view(torch.int8).float()
    scale = _halves(blocks[:, 208:210])
    fours = torch.cat([low & 15, low >> 4], 2).reshape(count, 2, 4, 32)
    twos = torch.cat([(high >> shift) & 3 for shift in (0, 2, 4, 6)], 2)
    values = ((fours | (twos << 4)).to(torch.int16) - 32).float().reshape(count, 16, 16)
    return values * (scales * scale)[:, :, None]
