"""What the stages of training minimise: labels, the teacher's word, translations."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from training.batches import Batch, Step, pad
from training.network import DEVICE, Network

Sentence = tuple[list[int], list[int]]


def frame(sentences: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return padded sentences on the device."""
    windows = [([101, *ids, 102], [0] * (len(ids) + 2)) for ids in sentences]
    ids, speakers, mask = pad(windows)
    return ids.to(DEVICE), speakers.to(DEVICE), mask.to(DEVICE)


def vectors(network: Network, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return unit vectors."""
    return f.normalize(network.pool(*inputs), dim=-1)


def parallel_loss(network: Network, base: Network, batch: list[Sentence]) -> Tensor:
    """Return how far both sides are from the base's English vector."""
    english, other = frame([en for en, _ in batch]), frame([xx for _, xx in batch])
    with torch.autocast(DEVICE, torch.bfloat16):
        with torch.no_grad():
            target = vectors(base, english)
        loss = 2 - (vectors(network, other) * target).sum(-1)
        loss = loss - (vectors(network, english) * target).sum(-1)
    return loss.float().mean()


def translated_loss(network: Network, batch: list[Sentence]) -> Tensor:
    """Return how differently a translation is judged from its English original."""
    english, other = frame([en for en, _ in batch]), frame([xx for _, xx in batch])
    with torch.autocast(DEVICE, torch.bfloat16):
        with torch.no_grad():
            wanted = network(*english)[0].float().clamp(-8, 8)
        judged = network(*other)[0].float().clamp(-8, 8)
    return f.smooth_l1_loss(judged, wanted)


def judged(network: Network, step: Step) -> list[Tensor]:
    """Return the logits of each batch's task, one row per example; the first decides."""
    return told(network, network.pool_flat(step.flat), step)


def told(network: Network, pooled: Tensor, step: Step) -> list[Tensor]:
    """Return the logits of each batch's task by the pooled windows of a step."""
    parts = pooled.split([len(batch.owner) for batch in step.batches])
    heads = {
        "message": network.message_head,
        "context": network.context_head,
        "document": network.document_head,
    }
    return [
        best_windows(heads[batch.task](part).float(), batch.owner, len(batch.attack))
        for batch, part in zip(step.batches, parts, strict=True)
    ]


def best_windows(logits: Tensor, owner: Tensor, rows: int) -> Tensor:
    """Return the highest logit over each row's windows."""
    best = torch.full((rows, logits.shape[1]), -1e4, device=logits.device, dtype=logits.dtype)
    return best.scatter_reduce(0, owner[:, None].expand_as(logits), logits, "amax")


def label_loss(logits: Tensor, batch: Batch, margin: float) -> Tensor:
    """Return the loss by labels: attack, kinds or session, and the margin inside pairs."""
    score = logits[:, 0]
    loss = f.binary_cross_entropy_with_logits(score, batch.attack)
    if batch.task == "message":
        # A mask, since picking out what is known would wait for the device.
        known = (batch.kinds >= 0).float()
        others = f.binary_cross_entropy_with_logits(
            logits[:, 1:], batch.kinds.clamp(min=0), known, reduction="sum"
        )
        loss = loss + 0.5 * others / known.sum().clamp(min=1)
    elif batch.task == "context":
        loss = loss + 0.5 * f.binary_cross_entropy_with_logits(logits[:, 1], batch.session)
    if margin and len(batch.pairs):
        gap = score[batch.pairs[:, 0]] - score[batch.pairs[:, 1]]
        loss = loss + margin * f.softplus(1.0 - gap).mean()
    return loss


def distil_loss(student: Tensor, teacher: Tensor, batch: Batch, options: Any) -> Tensor:
    """Return the distance to the teacher's probabilities, with some of the labels' own loss."""
    soft = f.binary_cross_entropy_with_logits(student, teacher.sigmoid())
    gap = f.smooth_l1_loss(student.clamp(-8, 8), teacher.clamp(-8, 8))
    return soft + options.gap * gap + options.hard * label_loss(student, batch, options.margin)


class Translations:
    """Pairs of an English sentence and its translation: everyday ones, and of labelled prompts."""

    def __init__(self, parallel: list[Sentence], prompts: list[Sentence], seed: int) -> None:
        self.parallel, self.prompts = parallel, prompts
        self.rng = random.Random(seed)

    def draw(self, count: int) -> list[Sentence]:
        """Return `count` pairs, a third of them prompts."""
        few = min(count // 3, len(self.prompts))
        return [
            *self.rng.sample(self.parallel, count - few),
            *self.rng.sample(self.prompts, few),
        ]
