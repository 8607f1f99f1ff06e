"""Batches for training: pairs stay together, sources are balanced, attacks appear in context."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from promptguard.model.network import (
    USER,
    Window,
    context_window,
    document_windows,
    message_windows,
)
from training.flat import Flat, flattened, mapped
from training.weighing import SOURCE_BOOST, Row, boost_of

TRAINING_WINDOWS, MOST_WINDOWS = 3, 8
DROPPED_TOKENS = 0.1  # of half the texts, so that no single word decides
BORROWED_SYSTEM = 0.25  # of the talks without one, so that having one says nothing
WITHOUT_REPLIES = 0.4
MIXED = 0.25  # of the English prompts are shown with words of another language
GLOSSED = 0.3  # of the others are shown as their English gloss
JOINED = 0.12  # of the messages stand before or after an innocent one: padding must not help
TALKS, MADE = 0.5, 0.35  # of the context examples; the rest are first turns
FOLLOW_UPS = "authored_followups"
Turns = list[tuple[str, list[int]]]
Collated = tuple["Batch", list[Window]]


@dataclass
class Batch:
    """One batch of a task: whose each window is, and the targets."""

    task: str
    owner: Tensor
    attack: Tensor
    session: Tensor
    kinds: Tensor
    pairs: Tensor


@dataclass
class Step:
    """What one step of training sees: the windows of all its batches, one batch after another."""

    flat: Flat
    batches: tuple[Batch, ...]

    def to(self, device: str) -> Step:
        """Return the same on a device."""
        step: Step = mapped(self, lambda tensor: tensor.to(device, non_blocking=True))
        return step

    def pin_memory(self) -> Step:
        """Return the same where a device can fetch it without being waited for."""
        step: Step = mapped(self, lambda tensor: tensor.pin_memory() if tensor.numel() else tensor)
        return step


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
        self, rows: list[Row], authored_boost: float, boosts: Mapping[str, float] = SOURCE_BOOST
    ) -> None:
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for index, row in enumerate(rows):
            key = row["pair"]
            groups[("pair", key) if key else (row["source"], str(index))].append(row)
        by_source: dict[str, list[list[Row]]] = defaultdict(list)
        for group in groups.values():
            by_source[group[0]["source"]].append(group)
        self.units = list(by_source.values())
        self.weights = [
            math.sqrt(sum(map(len, units))) * boost_of(units[0][0], authored_boost, boosts)
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
    """An endless stream of steps, with a batch of each task."""

    def __init__(self, rows: list[Row], options: Any, seed: int) -> None:
        fresh = {n: SOURCE_BOOST.get(n, 1.0) * options.fresh_boost for n in options.fresh}
        boosts = (options.authored_boost, SOURCE_BOOST | fresh)
        by_task = {
            task: [r for r in rows if r["task"] == task]
            for task in ("message", "context", "document")
        }
        self.messages = Sampler(by_task["message"], *boosts)
        talks = [r for r in by_task["context"] if is_talk(r)]
        self.talks = Sampler(talks, *boosts)
        self.firsts = Sampler([r for r in by_task["context"] if not is_talk(r)], *boosts)
        self.documents = Sampler(by_task["document"], *boosts)
        quiet = [r["ids"] for r in talks if not r["session"]]
        self.small_talk = [turns for turns in quiet if len(turns) > 2]
        self.replies = [
            ids for turns in self.small_talk for role, ids in turns if role == "assistant"
        ]
        self.follow_ups = [
            r["ids"][-1] for r in by_task["context"] if r["source"] == FOLLOW_UPS
        ] or [turns[-1] for turns in quiet]
        self.systems = [r["system_ids"] for r in by_task["context"] if r["system_ids"]]
        self.innocent = [r["ids"] for r in by_task["message"] if not r["attack"]]
        self.size, self.seed = options.batch, seed
        self.context_size = round(self.size * options.talks)
        self.document_size = round(self.size * options.documents)

    def __iter__(self) -> Iterator[Step]:
        worker = torch.utils.data.get_worker_info()
        rng = random.Random(self.seed * 1000 + (worker.id if worker else 0))
        while True:
            yield step_of(
                self.message_batch(rng),
                self.context_batch(rng),
                self.document_batch(rng),
            )

    def message_batch(self, rng: random.Random) -> Collated:
        """Return a batch of messages, each in a few windows."""
        rows = self.messages.draw(self.size, rng)
        found = []
        for row in rows:
            ids = thinned(shown(row, rng), rng)
            if rng.random() < JOINED:
                beside = flat(rng.choice(self.innocent))
                ids = [*beside, *ids] if rng.random() < 0.5 else [*ids, *beside]
            windows = [(w, [USER] * len(w)) for w in message_windows(ids)]
            # All windows of an attack: what makes it one may stand in any of them.
            found.append(windows[:MOST_WINDOWS] if row["attack"] else some(windows, rng))
        return collate("message", rows, found)

    def document_batch(self, rng: random.Random) -> Collated:
        """Return a batch of untrusted contents beside the user's request."""
        rows = self.documents.draw(self.document_size, rng)
        found = []
        for row in rows:
            (_, task), (_, ids) = row["ids"]
            # All windows of an attack: the order stands in one of them.
            windows = document_windows(task, ids, MOST_WINDOWS)
            found.append(windows if row["attack"] else some(windows, rng))
        return collate("document", rows, found)

    def context_batch(self, rng: random.Random) -> Collated:
        """Return talks as they are, and attacks begun late, continued, or left behind."""
        size = self.context_size
        rows = self.talks.draw(int(size * TALKS), rng)
        rows += self.firsts.draw(int(size * (1 - TALKS - MADE)), rng)
        said: list[Turns] = [
            row["gloss_ids"] if "gloss_ids" in row and rng.random() < GLOSSED else row["ids"]
            for row in rows
        ]
        while len(rows) < size:
            made = rng.choice((self._late, self._late, self._continued, self._recovered))(rng)
            for row, turns in made:
                rows.append(row)
                said.append(turns)
        windows = []
        for row, turns in zip(rows, said, strict=True):
            kept = turns
            if rng.random() < WITHOUT_REPLIES:
                kept = [turn for turn in turns if turn[0] != "assistant"] or turns
            system = row["system_ids"]
            if not system and self.systems and rng.random() < BORROWED_SYSTEM:
                system = rng.choice(self.systems)
            thin = [(role, thinned(ids, rng)) for role, ids in kept]
            windows.append([context_window(thin, system)])
        return collate("context", rows, windows)

    def _late(self, rng: random.Random) -> list[tuple[Row, Turns]]:
        """Messages placed behind small talk."""
        before = rng.choice(self.small_talk)
        start = rng.randrange(0, max(1, len(before) - 2))
        before = before[start : start + rng.choice((2, 4, 6))]
        return [(row, [*before, *row["ids"]]) for row in self.messages.draw(1, rng)]

    def _continued(self, rng: random.Random) -> list[tuple[Row, Turns]]:
        """Messages, an answer, and a turn that only asks to go on."""
        further = rng.choice(self.follow_ups)
        reply = ("assistant", rng.choice(self.replies))
        return [(row, [*row["ids"], reply, further]) for row in self.messages.draw(1, rng)]

    def _recovered(self, rng: random.Random) -> list[tuple[Row, Turns]]:
        """A message, an answer, and something else altogether that is harmless."""
        row = self.messages.draw(1, rng)[0]
        turns: Turns = [*row["ids"]]
        for _ in range(rng.choice((1, 1, 2, 3))):
            turns += [("assistant", rng.choice(self.replies)), *rng.choice(self.innocent)]
        left = {"attack": 0, "session": row["attack"], "pair": None}
        return [({**row, **left}, turns)]


def is_talk(row: Row) -> bool:
    """Say whether a row has turns before its last, or a system prompt to be read with it."""
    return bool(row["system_ids"]) or sum(role == "user" for role, _ in row["ids"]) > 1


def flat(turns: Turns) -> list[int]:
    """Return the tokens of all turns in a row."""
    return [token for _, part in turns for token in part]


def shown(row: Row, rng: random.Random) -> list[int]:
    """Return a message's tokens, now and then with words of another language, or as a gloss."""
    if "mixed" in row and rng.random() < MIXED:
        mixed: list[int] = rng.choice(row["mixed"])
        return mixed
    return flat(row["gloss_ids" if "gloss_ids" in row and rng.random() < GLOSSED else "ids"])


def some(windows: list[Window], rng: random.Random) -> list[Window]:
    """Return a few windows of a long text."""
    if len(windows) <= TRAINING_WINDOWS:
        return windows
    return rng.sample(windows, TRAINING_WINDOWS)


def thinned(ids: list[int], rng: random.Random) -> list[int]:
    """Drop a tenth of the tokens of every other text."""
    if rng.random() < 0.5:
        return ids
    return [token for token in ids if rng.random() >= DROPPED_TOKENS] or ids


def collate(task: str, rows: list[Row], found: list[list[Window]]) -> Collated:
    """Return the targets of rows as tensors, and their windows."""
    sides: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, row in enumerate(rows):
        if row["pair"]:
            sides[row["pair"]][row["attack"]].append(index)
    pairs = [(a, b) for benign, attacks in sides.values() for a in attacks for b in benign]
    spans = torch.tensor([len(windows) for windows in found])
    batch = Batch(
        task=task,
        owner=torch.repeat_interleave(torch.arange(len(rows)), spans),
        attack=torch.tensor([float(row["attack"]) for row in rows]),
        session=torch.tensor([float(row["session"]) for row in rows]),
        kinds=torch.tensor([row["kinds"] for row in rows], dtype=torch.float32),
        pairs=torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
    )
    return batch, [window for windows in found for window in windows]


def step_of(*collated: Collated) -> Step:
    """Return batches with the windows of all of them in one row."""
    windows = [window for _, part in collated for window in part]
    return Step(flattened(windows), tuple(batch for batch, _ in collated))


def stream(rows: list[Row], options: Any, seed: int) -> Iterator[Step]:
    """Yield steps made by several processes."""
    torch.manual_seed(seed)
    batches = Batches(rows, options, seed)
    is_pinned = torch.cuda.is_available()
    return iter(
        DataLoader(batches, batch_size=None, num_workers=options.workers, pin_memory=is_pinned)
    )
