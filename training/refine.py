"""Train the two readers further without a teacher: labels for the thorough one, its word for both.

For when a teacher's weights are not at hand. The thorough reader learns from the labels, the quick
one from the labels and from what the thorough one says of the same windows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from training.batches import stream
from training.course import Course, optimiser_of
from training.losses import (
    Translations,
    distil_loss,
    forward_windows,
    frame,
    label_loss,
    task_logits,
    vectors,
)
from training.network import DEVICE, Network, save_all
from training.weighing import Row

STORE_EVERY = 120


def refine(
    quick: Network,
    thorough: Network,
    start: Network,
    rows: list[Row],
    translations: Translations,
    options: Any,
) -> None:
    """Train both readers, storing their weights as it goes; `start` is the quick one as it was.

    Its English vectors stay where they are, since topics and similarity rest on them.
    """
    loader = stream(rows, options, options.seed + 2)
    optimisers = [
        optimiser_of(network, options.student_rate[name] * options.refine_rate, 0.95)
        for name, network in (("quick", quick), ("thorough", thorough))
    ]
    course = Course(options.distil_steps, options.seconds, *optimisers)
    stored = 0.0
    quick.train(), thorough.train()
    for step in course:
        batches = [batch.to(DEVICE) for batch in next(loader)]
        pairs = translations.draw(256)
        english, other = frame([en for en, _ in pairs]), frame([xx for _, xx in pairs])
        with torch.autocast(DEVICE, torch.bfloat16):
            judged = [task_logits(forward_windows(thorough, b), b) for b in batches]
            loss = sum(
                label_loss(j, b, options.margin) for j, b in zip(judged, batches, strict=True)
            )
            with torch.no_grad():
                plain, kept = thorough(*english), vectors(start, english)
            foreign = thorough(*other)
            loss = loss + options.translated * _apart(foreign[0], plain[0])
            loss = loss + options.keep * _turned(foreign[3], plain[3])
            wanted = [j.detach() for j in judged]
            own = [task_logits(forward_windows(quick, b), b) for b in batches]
            loss = loss + sum(
                distil_loss(o, w, b, options) for o, w, b in zip(own, wanted, batches, strict=True)
            )
            foreign = quick(*other)
            loss = loss + options.translated * _apart(foreign[0], plain[0])
            loss = loss + options.keep * _turned(foreign[3], kept)
        loss.backward()
        for network, optimiser in zip((quick, thorough), optimisers, strict=True):
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if step % 100 == 0:
            print(f"refine {step} {loss.item():.3f} {course.took:.0f}s", flush=True)
        if course.took - stored > STORE_EVERY:
            stored = course.took
            save_all({"quick": quick, "thorough": thorough}, options.work)
    save_all({"quick": quick, "thorough": thorough}, options.work)
    print(f"refined for {course.step} steps", flush=True)


def _apart(judged: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return f.smooth_l1_loss(judged.float().clamp(-8, 8), wanted.float().clamp(-8, 8))


def _turned(vector: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 1 - (vector.float() * target.float()).sum(-1).mean()
