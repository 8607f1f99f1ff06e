"""How the rates of a training stage rise and fall, by steps or by time."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from training.network import Network

WARM_UP = 0.1


def optimiser_of(network: Network, rate: float, decay: float) -> torch.optim.AdamW:
    """Return AdamW with smaller rates for lower layers and larger ones for the heads."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    top = network.shape.layers - 1
    for name, parameter in network.named_parameters():
        if "head" in name:
            # The heads begin untrained, the encoder with the weights of its base.
            own = rate * 8
        else:
            depth = top - int(name.split(".")[1]) if name.startswith("layers.") else top + 1
            own = rate * decay**depth
        groups[(own, 0.01 if parameter.ndim > 1 else 0.0)].append(parameter)
    return torch.optim.AdamW(
        [{"params": p, "lr": lr, "weight_decay": wd} for (lr, wd), p in groups.items()],
        fused=torch.cuda.is_available(),
    )


class Course:
    """How far a stage has come, by steps or by the time it was given, whichever is further.

    Rates follow a short warm-up and a long cosine over it, so that a stage that runs out of time
    ends as one that ran out of steps does.
    """

    def __init__(self, steps: int, seconds: float, *optimisers: torch.optim.AdamW) -> None:
        self.steps, self.seconds, self.step = steps, seconds, 0
        self.start = time.time()
        self.groups = [
            (group, group["lr"]) for optimiser in optimisers for group in optimiser.param_groups
        ]
        self._set_rates()

    @property
    def took(self) -> float:
        """The seconds since the stage began."""
        return time.time() - self.start

    @property
    def share(self) -> float:
        """The part of the stage that is done."""
        return max(self.step / self.steps, self.took / self.seconds)

    def __iter__(self) -> Iterator[int]:
        while self.share < 1:
            yield self.step
            self.step += 1
            self._set_rates()

    def _set_rates(self) -> None:
        share = min(1.0, self.share)
        factor = (
            # Reaches the whole rate at the end of the warm-up, where the cosine begins.
            0.04 + 9.6 * share
            if share < WARM_UP
            else 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))
        )
        for group, rate in self.groups:
            group["lr"] = rate * factor


def step_with(loss: Tensor, network: Network, optimiser: torch.optim.AdamW) -> None:
    """Take one step down the loss, however steep it is."""
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
