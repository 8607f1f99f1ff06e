"""What training changed in a reader, in half a byte a weight, so that it travels in one piece.

    python -m training.changes thorough src/promptguard/data/model .train/thorough.changes.pt \\
        .train/runs/thorough.pt

Training writes the difference to the shipped reader that it went on from (`changes-thorough` of
`training.train`); this puts both together again. A difference is small beside the weights, so that
what is lost in rounding it is far less than what the shipped form loses.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.network import save_state
from training.restore import restore

GROUP = 64  # weights that share a unit
LEVELS = 7  # on either side of zero
LARGE = 2**16  # weights; smaller tensors are stored whole
UNCHANGED = 1e-3  # of a matrix: what taking a mean of equal weights may round otherwise

State = Mapping[str, Tensor]


def packed(difference: Tensor) -> tuple[Tensor, Tensor]:
    """Return a difference as two weights a byte, and the units."""
    groups = difference.reshape(-1, GROUP)
    unit = (groups.abs().amax(1, keepdim=True) / LEVELS).clamp(min=1e-9)
    steps = ((groups / unit).round() + LEVELS).to(torch.uint8).reshape(-1)
    return steps[::2] * 16 + steps[1::2], unit.half()


def unpacked(stored: tuple[Tensor, Tensor], shape: torch.Size) -> Tensor:
    """Return the difference that `packed` was given, rounded."""
    pairs, unit = stored
    steps = torch.stack([pairs // 16, pairs % 16], 1).reshape(-1, GROUP).float() - LEVELS
    return (steps * unit.float()).reshape(shape)


def changes_between(old: State, new: State) -> dict[str, Any]:
    """Return what has changed: large matrices as packed differences, the rest as it is now."""
    found: dict[str, Any] = {}
    for name, value in new.items():
        if value.ndim < 2 or value.numel() < LARGE:
            found[name] = value.half()
        elif (value.half() != old[name].half()).float().mean() > UNCHANGED:
            found[name] = packed(value - old[name])
    return found


def applied(old: State, changes: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights after the changes."""
    state = dict(old)
    for name, change in changes.items():
        if isinstance(change, tuple):
            state[name] = old[name] + unpacked(change, old[name].shape)
        else:
            state[name] = change.float()
    return state


def main() -> None:
    """Write the trained reader in full."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=("quick", "thorough"))
    parser.add_argument("start", type=Path, help="the shipped readers that training went on from")
    parser.add_argument("changes", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    network = restore(options.name, options.start)
    changes = torch.load(options.changes, map_location="cpu")
    network.load_state_dict(applied(network.state_dict(), changes))
    save_state(network, options.out)


if __name__ == "__main__":
    main()
