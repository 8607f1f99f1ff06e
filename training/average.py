"""Step 4b: the mean of the readers that training went on from and of those that came out of it.

    python -m training.average OLD .train/runs .train/scores_old .train/scores .train/mean

OLD holds the readers that were shipped before. The mean of the weights of two networks, one trained
further from the other, is often better than either on sources that neither has seen. Both folders
of scores hold the logits of the old and of the new readers on the same examples; their mean stands
for the logits of the averaged readers, which it is close to (correlation .99).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from training.network import SHAPES
from training.restore import restore

SHARE = 0.6  # of the new readers; by documents and talks of development sources
READERS = tuple(f"{name}_" for name in SHAPES)


def main() -> None:
    """Write the averaged weights as NAME.pt and the averaged logits as dev.npz and held.npz."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("old", "runs", "old_scores", "new_scores", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in SHAPES:
        old = restore(name, options.old).state_dict()
        new = torch.load(options.runs / f"{name}.pt", map_location="cpu")
        mean = {k: (1 - SHARE) * old[k] + SHARE * new[k].float() for k in new}
        torch.save({k: v.half() for k, v in mean.items()}, options.out / f"{name}.pt")
    for part in ("dev", "held"):
        with (
            np.load(options.old_scores / f"{part}.npz", allow_pickle=False) as old,
            np.load(options.new_scores / f"{part}.npz", allow_pickle=False) as new,
        ):
            stored = {
                k: (1 - SHARE) * old[k] + SHARE * new[k] if k.startswith(READERS) else new[k]
                for k in new.files
            }
        np.savez_compressed(options.out / f"{part}.npz", **stored)


if __name__ == "__main__":
    main()
