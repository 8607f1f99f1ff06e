"""Take the few input channels with outlying values out of a network's int8 products.

MPNet feeds its linear layers a handful of channels that are forty times as large as the rest. In a
product with int8 activations, which have one scale for all, they leave the others no precision.
Each such layer is split: the outlying channels are multiplied in float, the rest in int8.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from promptguard.model.network import Window
from training.batches import pad
from training.network import Network

CHANNELS = 8
PARTS = ("query", "key", "value", "up", "down")


class Split(nn.Module):
    """A linear layer whose outlying input channels have a small product of their own."""

    def __init__(self, linear: nn.Linear, channels: Tensor) -> None:
        super().__init__()
        keep = torch.ones(linear.in_features)
        keep[channels] = 0
        self.register_buffer("keep", keep)
        self.register_buffer("channels", channels)
        self.few = nn.Parameter(linear.weight.detach()[:, channels].T.contiguous())
        self.rest = nn.Linear(linear.in_features, linear.out_features, bias=False)
        # Zeroed as well: weights nobody multiplies would still widen the int8 scale.
        self.rest.weight = nn.Parameter(linear.weight.detach() * keep)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return what the whole layer gives; the bias comes last, where it fuses with GELU."""
        few = x.index_select(-1, self.channels) @ self.few
        return self.rest(x * self.keep) + few + self.bias


@torch.no_grad()
def split_outliers(network: Network, windows: list[Window]) -> None:
    """Split the layers of a network, in place, by what it computes for some windows."""
    largest: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found = inputs[0].abs().amax(dim=(0, 1))
        largest[module] = torch.maximum(largest.get(module, found), found)

    linears = [(layer, name) for layer in network.layers for name in PARTS]
    hooks = [getattr(layer, name).register_forward_pre_hook(note) for layer, name in linears]
    for window in windows:
        network(*pad([window]))
    for hook in hooks:
        hook.remove()
    for layer, name in linears:
        linear = getattr(layer, name)
        channels = largest[linear].topk(CHANNELS).indices.sort().values
        setattr(layer, name, Split(linear, channels))
