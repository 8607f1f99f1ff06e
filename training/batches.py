"""Batches for fine-tuning: pairs stay together, sources are balanced, attacks appear in context."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from promptguard.model.cutting import context_window, message_windows
from training.weighing import SOURCE_BOOST, Row, boost_of

Window = tuple[list[int], list[int]]
TRAINING_WINDOWS = 3
DROPPED_TOKENS = 0.1  # of half the texts, so that no single word decides


@dataclass
class Batch:
    """One batch: windows, whose rows they are, and the targets."""

    ids: Tensor
    speakers: Tensor
    mask: Tensor
    owner: Tensor
    first: Tensor
    attack: Tensor
    kinds: Tensor
    pairs: Tensor
    is_context: bool

    def to(self, device: str) -> Batch:
        """Return the batch on a device."""
        moved = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Batch(**moved)


def pad(windows: list[Window]) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, speakers and mask of equal length."""
    shape = (len(windows), max(len(ids) for ids, _ in windows))
    ids, speakers, mask = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, (tokens, who) in enumerate(windows):
        ids[row, : len(tokens)] = tokens
        speakers[row, : len(who)] = who
        mask[row, : len(tokens)] = 1
    return torch.from_numpy(ids), torch.from_numpy(speakers), torch.from_numpy(mask)


class Sampler:
    """Draws units (a pair, or one record) by source, each source by the root of its size."""

    def __init__(
        self, rows: list[Row], authored_boost: float, boost: dict[str, float] | None = None
    ) -> None:
        boost = SOURCE_BOOST | (boost or {})
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for index, row in enumerate(rows):
            key = row["pair"]
            groups[("pair", key) if key else (row["source"], str(index))].append(row)
        by_source: dict[str, list[list[Row]]] = defaultdict(list)
        for group in groups.values():
            by_source[group[0]["source"]].append(group)
        self.units = list(by_source.values())
        self.weights = [
            math.sqrt(sum(map(len, units))) * boost_of(units[0][0], authored_boost, boost)
            for units in by_source.values()
        ]

    def draw(self, count: int, rng: random.Random) -> list[Row]:
        """Return at least `count` rows."""
        drawn: list[Row] = []
        while len(drawn) < count:
            unit = rng.choice(rng.choices(self.units, self.weights)[0])
            drawn += unit if len(unit) <= 4 else rng.sample(unit, 4)
        return drawn


class Batches(IterableDataset):  # type: ignore[type-arg]
    """An endless stream of alternating message and context batches."""

    def __init__(
        self,
        rows: list[Row],
        size: int,
        authored_boost: float,
        seed: int,
        boost: dict[str, float] | None = None,
    ) -> None:
        messages = [r for r in rows if r["task"] == "message"]
        self.messages = Sampler(messages, authored_boost, boost)
        context = [r for r in rows if r["task"] == "context"]
        self.contexts = Sampler(context, authored_boost, boost)
        self.talk = [r for r in context if not r["attack"] and len(r["ids"]) > 2]
        self.size, self.seed = size, seed

    def __iter__(self) -> Iterator[tuple[Batch, Batch]]:
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(self.seed * 1000 + (worker.id if worker else 0))
        while True:
            yield (
                self.message_batch(self.messages.draw(self.size, rng), rng),
                self.context_batch(rng),
            )

    def message_batch(self, rows: list[Row], rng: random.Random) -> Batch:
        """Return a batch of messages, each in up to four windows."""
        found = []
        for row in rows:
            ids = thinned([token for _, part in row["ids"] for token in part], rng)
            windows = message_windows(ids, 24)
            if len(windows) > TRAINING_WINDOWS:
                windows = rng.sample(windows, TRAINING_WINDOWS)
            found.append([(tokens, [0] * len(tokens)) for tokens in windows])
        return collate(rows, found, is_context=False)

    def context_batch(self, rng: random.Random) -> Batch:
        """Return a batch of conversations: whole ones, and messages placed behind small talk."""
        rows = self.contexts.draw(self.size // 4, rng)
        said = [row["ids"] for row in rows]
        while len(rows) < self.size // 2:
            unit = self.messages.draw(1, rng)
            before = rng.choice(self.talk)["ids"]
            start = rng.randrange(0, max(1, len(before) - 2))
            before = before[start : start + rng.choice((2, 4, 6))]
            rows += unit
            said += [[*before, *row["ids"]] for row in unit]
        windows = []
        for turns in said:
            kept = turns
            if rng.random() < 0.4:
                kept = [turn for turn in turns if turn[0] != "assistant"] or turns
            windows.append([context_window([(role, thinned(ids, rng)) for role, ids in kept])])
        return collate(rows, windows, is_context=True)


def thinned(ids: list[int], rng: random.Random) -> list[int]:
    """Drop a tenth of the tokens of every other text."""
    if rng.random() < 0.5:
        return ids
    return [token for token in ids if rng.random() >= DROPPED_TOKENS] or ids


def collate(rows: list[Row], found: list[list[Window]], *, is_context: bool) -> Batch:
    """Lay rows and their windows out as tensors."""
    flat = [window for windows in found for window in windows]
    spans = [len(windows) for windows in found]
    sides: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, row in enumerate(rows):
        if row["pair"]:
            sides[row["pair"]][row["attack"]].append(index)
    pairs = [(a, b) for benign, attacks in sides.values() for a in attacks for b in benign]
    ids, speakers, mask = pad(flat)
    return Batch(
        ids=ids,
        speakers=speakers,
        mask=mask,
        owner=torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(spans)),
        first=torch.cumsum(torch.tensor([0, *spans[:-1]]), 0),
        attack=torch.tensor([float(row["attack"]) for row in rows]),
        kinds=torch.tensor([row["kinds"] for row in rows], dtype=torch.float32),
        pairs=torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
        is_context=is_context,
    )
