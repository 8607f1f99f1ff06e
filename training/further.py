"""Training without a GPU: upper layers of the thorough reader, all layers of the quick one.

On a CPU most of a step's time goes into the lowest layers of the thorough reader, which change
least. So a number of steps is drawn once, their windows run through the lowest layers once, and the
layers above are trained in several passes over what came out. The quick reader, an eighth of the
work, is then distilled on the same steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from training.batches import Batches, Step
from training.course import Course, optimiser_of, step_with
from training.losses import Translations, distil_loss, frame, judged, label_loss, told, vectors
from training.network import DEVICE, Network
from training.weighing import Row


@dataclass
class Kept:
    """A step, and what the lowest layers made of it."""

    step: Step
    lower: Tensor


@dataclass
class Translated:
    """Translations, what the thorough reader says of their English, and the base's vectors."""

    other: tuple[Tensor, Tensor, Tensor]
    wanted: Tensor
    target: Tensor


def keep_lower(network: Network, rows: list[Row], options: Any) -> list[Kept]:
    """Return `options.drawn` steps with the states after the frozen layers."""
    steps = iter(Batches(rows, options, options.seed))
    kept, start = [], time.time()
    network.eval()
    with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
        for count in range(options.drawn):
            step = next(steps).to(DEVICE)
            kept.append(Kept(step, network.lower_flat(step.flat, options.frozen).bfloat16()))
            if count % 50 == 0:
                print(f"kept {count}, {time.time() - start:.0f}s", flush=True)
    return kept


def train_upper(network: Network, kept: list[Kept], options: Any) -> None:
    """Train the layers above the frozen ones and the heads, in `options.passes` passes."""
    network.train()
    optimiser = optimiser_of(network, options.rate, 0.9)
    course = Course(options.passes * len(kept), options.seconds, optimiser)
    for step, part in zip(course, passes(kept, options.seed), strict=False):
        with torch.autocast(DEVICE, torch.bfloat16):
            pooled = network.upper_flat(part.lower.float(), part.step.flat, options.frozen)
            found = told(network, pooled, part.step)
        losses = [
            label_loss(logits, batch, options.margin)
            for logits, batch in zip(found, part.step.batches, strict=True)
        ]
        step_with(sum(losses, torch.zeros(())), network, optimiser)
        if step % 50 == 0:
            shown = " ".join(f"{loss.item():.3f}" for loss in losses)
            print(f"upper {step} {shown} {course.took:.0f}s", flush=True)


def distil_kept(
    quick: Network,
    thorough: Network,
    base: Network,
    kept: list[Kept],
    translations: Translations,
    options: Any,
) -> None:
    """Teach the quick reader what the thorough one says of the kept steps, and of translations."""
    lessons = [
        (part.step, teacher_logits(thorough, part, options), translated)
        for part, translated in zip(
            kept, drawn(thorough, base, translations, options), strict=False
        )
    ]
    print(f"{len(lessons)} lessons", flush=True)
    optimiser = optimiser_of(quick, options.quick_rate, 0.95)
    course = Course(
        options.quick_passes * len(lessons),
        options.distil_seconds or options.seconds,
        optimiser,
    )
    quick.train()
    for count, lesson in zip(course, passes(lessons, options.seed), strict=False):
        step, wanted, pairs = lesson
        with torch.autocast(DEVICE, torch.bfloat16):
            found = judged(quick, step)
            foreign = quick(*pairs.other)
        far = f.smooth_l1_loss(foreign[0].float().clamp(-8, 8), pairs.wanted)
        apart = 1 - (foreign[3].float() * pairs.target).sum(-1).mean()
        losses = [
            distil_loss(logits, teacher, batch, options)
            for logits, teacher, batch in zip(found, wanted, step.batches, strict=True)
        ]
        loss = sum(losses, torch.zeros(())) + options.translated * far + options.keep * apart
        step_with(loss, quick, optimiser)
        if count % 50 == 0:
            print(f"quick {count} {loss.item():.3f} {course.took:.0f}s", flush=True)


@torch.no_grad()
def teacher_logits(thorough: Network, part: Kept, options: Any) -> list[Tensor]:
    """Return what the thorough reader says of a kept step."""
    thorough.eval()
    with torch.autocast(DEVICE, torch.bfloat16):
        pooled = thorough.upper_flat(part.lower.float(), part.step.flat, options.frozen)
        return told(thorough, pooled, part.step)


@torch.no_grad()
def drawn(
    thorough: Network, base: Network, translations: Translations, options: Any
) -> Iterator[Translated]:
    """Yield translations with what they are to be judged and embedded like."""
    while True:
        pairs = translations.draw(options.pairs)
        english, other = frame([en for en, _ in pairs]), frame([xx for _, xx in pairs])
        with torch.autocast(DEVICE, torch.bfloat16):
            wanted = thorough(*english)[0].float().clamp(-8, 8)
            target = vectors(base, english).float()
        yield Translated(other, wanted, target)


def passes(parts: list[Any], seed: int) -> Iterator[Any]:
    """Yield all parts again and again, in another order each time."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(parts, len(parts))
