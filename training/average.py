"""Step 4b: the mean of the readers that training went on from and of those that came out of it.

    python -m training.average OLD .train/runs .train/mean --share 0.6

OLD holds the readers that were shipped before. The mean of the weights of two networks, one trained
further from the other, is often better than either on sources that neither has seen. The stage
`score` with `--work .train/mean` then scores it like any other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.network import SHAPES
from training.restore import restore


def main() -> None:
    """Write the averaged weights as NAME.pt."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("old", "runs", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--share", type=float, required=True, help="of the new readers")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    share = options.share
    for name in SHAPES:
        old = restore(name, options.old).state_dict()
        new = torch.load(options.runs / f"{name}.pt", map_location="cpu")
        mean = {
            # A head that the old reader has not got is all zeros.
            key: (1 - share) * old[key] + share * new[key].float() if old[key].any() else new[key]
            for key in new
        }
        torch.save({key: value.half() for key, value in mean.items()}, options.out / f"{name}.pt")


if __name__ == "__main__":
    main()
