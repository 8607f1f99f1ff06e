"""Windows of any length in one pass: padded in attention alone.

Half of what a padded batch computes is padding, since most messages are short and a few fill the
window. Here all tokens of a step stand in one row, ordered by the length of their window; only
attention lays windows of like length side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from promptguard.model.network import Window

# Windows up to each of these lengths are padded to the longest among them.
STEPS = (32, 64, 112, 160, 512)
ROUND = 8  # lengths that attention is fast with


@dataclass(frozen=True)
class Bucket:
    """Windows of like length: how they are laid out, and where each token goes."""

    windows: int
    length: int
    tokens: int
    places: Tensor
    """Where each token stands among `windows` x `length` cells."""
    is_padding: Tensor
    """The cells that hold no token."""


@dataclass(frozen=True)
class Flat:
    """All tokens of some windows in a row, the shortest window first."""

    ids: Tensor
    speakers: Tensor
    places: Tensor
    """The place of each token in its window."""
    owner: Tensor
    """The window of each token."""
    lengths: Tensor
    back: Tensor
    """Which of the windows, as ordered here, each of the given windows is."""
    buckets: tuple[Bucket, ...]


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a value with all its tensors changed, those of its fields too."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(mapped(one, change) for one in value)
    if isinstance(value, dict):
        return {key: mapped(one, change) for key, one in value.items()}
    if is_dataclass(value):
        fields = {name: mapped(one, change) for name, one in vars(value).items()}
        return type(value)(**fields)
    return value


def flattened(windows: Sequence[Window]) -> Flat:
    """Lay windows out in one row."""
    sizes = np.array([len(ids) for ids, _ in windows])
    order = np.argsort(sizes, kind="stable")
    sizes = sizes[order]
    ids = np.concatenate([windows[i][0] for i in order])
    speakers = np.concatenate([windows[i][1] for i in order])
    places = np.concatenate([np.arange(size) for size in sizes])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    ends = np.searchsorted(sizes, STEPS, "right")
    parts = np.split(sizes, ends)
    return Flat(
        ids=torch.from_numpy(ids),
        speakers=torch.from_numpy(speakers),
        places=torch.from_numpy(places),
        owner=torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)),
        lengths=torch.from_numpy(sizes.astype(np.float32)),
        back=torch.from_numpy(back),
        buckets=tuple(bucket_of(part) for part in parts if len(part)),
    )


def bucket_of(sizes: np.ndarray) -> Bucket:
    """Return where windows of these lengths, in ascending order, are laid."""
    length = -(-int(sizes[-1]) // ROUND) * ROUND
    is_token = np.arange(length)[None, :] < sizes[:, None]
    return Bucket(
        windows=len(sizes),
        length=length,
        tokens=int(sizes.sum()),
        places=torch.from_numpy(np.flatnonzero(is_token)),
        is_padding=torch.from_numpy(~is_token),
    )


class Lay(torch.autograd.Function):
    """Puts rows into the cells of a bucket; the others are zero."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, cells: int) -> Tensor:
        """Return `cells` rows."""
        ctx.save_for_backward(places)
        return rows.new_zeros(cells, rows.shape[1]).index_copy_(0, places, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the rows that were put."""
        (places,) = ctx.saved_tensors
        return grads[0].index_select(0, places), None, None


class Take(torch.autograd.Function):
    """Takes rows out of the cells of a bucket. Each cell is taken once at most, so that the
    gradient is a copy and no sum."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, places: Tensor) -> Tensor:
        """Return a row for each place."""
        ctx.save_for_backward(places)
        ctx.count = cells.shape[0]
        return cells.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of all cells."""
        (places,) = ctx.saved_tensors
        whole = grads[0].new_zeros(ctx.count, grads[0].shape[1])
        return whole.index_copy_(0, places, grads[0]), None
