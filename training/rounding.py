"""Rounding of weights to half a byte that spares what a network computes.

Rounding each weight to the nearest code loses most where inputs are large and go together. Here the
weights of a matrix are rounded one input at a time, and what a rounding spoils is made good by the
inputs not yet rounded, as the inputs' own second moments tell (the method known as GPTQ). Codes and
steps are those of `promptguard.model.packing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from promptguard.model.network import Window
from promptguard.model.packing import BLOCK, Packed, Weights, best_steps, join
from training.batches import pad
from training.network import Network
from training.outliers import Split

DAMPING = 0.01  # of the mean moment, so that inputs that hardly occur stay near their weights
TOGETHER = 24  # windows whose products are taken at once
ALIKE = ("key", "value")  # these are given what `query` is given
Moments = dict[str, Tensor]


@torch.no_grad()
def moments_of(network: Network, windows: list[Window]) -> Moments:
    """Return the second moments of what each linear layer is given for some windows, by name."""
    found: Moments = {}
    rows: dict[str, list[Tensor]] = defaultdict(list)
    hooks = []

    def noting(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, inputs: rows[name].append(inputs[0].flatten(0, 1))

    for index, layer in enumerate(network.layers):
        for part, module in layer.named_children():
            if isinstance(module, (Split, nn.Linear)) and part not in ALIKE:
                inner = module.rest if isinstance(module, Split) else module
                hooks.append(inner.register_forward_pre_hook(noting(f"layers.{index}.{part}")))
    for begin in range(0, len(windows), TOGETHER):
        for window in windows[begin : begin + TOGETHER]:
            network(*pad([window]))
        for name, parts in rows.items():
            some = torch.cat(parts)
            product = some.T @ some
            found[name] = found[name].add_(product) if name in found else product
        rows.clear()
    for hook in hooks:
        hook.remove()
    for index in range(len(network.layers)):
        for part in ALIKE:
            found[f"layers.{index}.{part}"] = found[f"layers.{index}.query"]
    return found


def packed(weights: Weights, moments: Tensor) -> Packed:
    """Return codes and steps of int8 weights (inputs x outputs) that spare the products most."""
    rest = torch.from_numpy(weights.astype(np.float32))
    inverse = _inverse_root(moments)
    codes = np.empty(weights.shape, dtype=np.int8)
    steps = np.empty((weights.shape[0] // BLOCK, weights.shape[1]), dtype=np.uint8)
    for place, begin in enumerate(range(0, len(rest), BLOCK)):
        end = begin + BLOCK
        block = rest[begin:end]
        # Chosen only now: what earlier blocks spoiled has changed the weights of this one.
        steps[place] = best_steps(block.numpy()[None])[0]
        step = torch.from_numpy(steps[place].astype(np.float32))
        errors = torch.empty_like(block)
        for index in range(BLOCK):
            column = begin + index
            code = torch.clamp(torch.round(block[index] / step), -8, 7)
            codes[column] = code.numpy().astype(np.int8)
            errors[index] = (block[index] - code * step) / inverse[column, column]
            block[index + 1 :] -= inverse[column, column + 1 : end, None] * errors[index]
        rest[end:] -= inverse[begin:end, end:].T @ errors
    return join(codes), steps


def _inverse_root(moments: Tensor) -> Tensor:
    """Return the upper Cholesky factor of the inverse of damped moments."""
    damped = moments.double().clone()
    mean = damped.diagonal().mean()
    damped.diagonal().add_(DAMPING * mean)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()
