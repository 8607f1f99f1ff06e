"""What the embedded model, the structural patterns and the engine see in one layer."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from promptguard.model.reading import MessageReading
from promptguard.protocols import Encoder
from promptguard.signals.structure import Findings, structure
from promptguard.text import read_text
from promptguard.text.read import TextViews
from promptguard.verdict import Verdict

BATCH_TEXTS = 16
REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReading:
    """Calibrated probabilities (the highest over the views), features, and how far to trust them.

    `decoded` names the disguises under which further views were found and read. `verdict` is the
    engine's on the layer as a turn, None where no engine is in use.
    """

    manipulative: float
    extractive: float
    harmful: float
    disagreement: float = 0.0
    familiarity: float = 1.0
    windows: int = 1
    is_truncated: bool = False
    decoded: tuple[str, ...] = ()
    findings: Findings = field(default_factory=Findings)
    verdict: Verdict | None = None


class LayerInput(NamedTuple):
    """One layer to read; `context` is JSON of the messages above and before it."""

    content: str
    context: str = ""


Engine = Callable[[LayerInput], Verdict]
"""Judges a layer as the next turn of its conversation."""


def read_layers(
    encoder: Encoder, engine: Engine | None, layers: Sequence[LayerInput]
) -> tuple[LayerReading, ...]:
    """Read each layer in every view, all of them in one call of the encoder."""
    viewed = [read_text(layer.content) for layer in layers]
    counts = [len(views.texts) for views in viewed]
    readings = encoder.read_messages([text for views in viewed for text in views.texts])
    found, start = [], 0
    for layer, views, count in zip(layers, viewed, counts, strict=True):
        verdict = None if engine is None else engine(layer)
        found.append(replace(_joined(views, readings[start : start + count]), verdict=verdict))
        start += count
    return tuple(found)


def _joined(views: TextViews, readings: Sequence[MessageReading]) -> LayerReading:
    plain = readings[0]
    # The model reads a bounded text; the patterns are cheap enough to look at more of it.
    searched = (*views.texts, views.original) if views.is_truncated else views.texts
    return LayerReading(
        manipulative=max(reading.manipulative for reading in readings),
        extractive=max(reading.extractive for reading in readings),
        harmful=max(reading.harmful for reading in readings),
        disagreement=max(reading.disagreement for reading in readings),
        familiarity=plain.familiarity if views.plain.strip() else 0.0,
        windows=sum(reading.windows for reading in readings),
        is_truncated=views.is_truncated or any(reading.is_truncated for reading in readings),
        decoded=tuple(dict.fromkeys(view.method for view in views.decoded)),
        findings=structure().find(searched),
    )


class BatchingReader:
    """Reads layers in a thread, for many callers: what comes in during one batch makes the next.

    A layer that is being read, or was among the last read, is not read again. Safe to share
    between tasks, threads and event loops. What the reading of a layer raises is raised for every
    caller that waits for this layer.
    """

    def __init__(self, read: Callable[[Sequence[LayerInput]], Sequence[LayerReading]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._futures: OrderedDict[bytes, Future[LayerReading]] = OrderedDict()
        self._waiting: list[tuple[bytes, LayerInput]] = []
        self._is_busy = False

    async def read(self, layer: LayerInput) -> LayerReading:
        """Return the reading of `layer`."""
        future, must_start = self._enqueue(layer)
        if must_start:
            self._start()
        # Shielded, because others may wait for the same layer when this caller is cancelled.
        return await asyncio.shield(asyncio.wrap_future(future))

    def _enqueue(self, layer: LayerInput) -> tuple[Future[LayerReading], bool]:
        # The length tells where the content ends and the context begins.
        named = f"{len(layer.content)} {layer.content}{layer.context}"
        key = hashlib.sha256(named.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            known = self._futures.get(key)
            if known is not None:
                self._futures.move_to_end(key)
                return known, False
            future: Future[LayerReading] = Future()
            self._futures[key] = future
            self._waiting.append((key, layer))
            must_start, self._is_busy = not self._is_busy, True
            return future, must_start

    def _start(self) -> None:
        try:
            asyncio.get_running_loop().run_in_executor(None, self._work)
        except RuntimeError as error:
            # The loop is closing and takes no more work; nobody may wait for what never begins.
            with self._lock:
                keys = [key for key, _ in self._waiting]
                self._waiting, self._is_busy = [], False
            self._fail(keys, error)

    def _work(self) -> None:
        while batch := self._next_batch():
            self._read_batch(batch)

    def _read_batch(self, batch: Sequence[tuple[bytes, LayerInput]]) -> None:
        try:
            readings = self._read([layer for _, layer in batch])
        except Exception as error:
            if len(batch) == 1:
                self._fail([key for key, _ in batch], error)
            else:
                # One by one, for a layer that cannot be read is no fault of another caller's.
                for item in batch:
                    self._read_batch([item])
            return
        with self._lock:
            futures = [self._futures[key] for key, _ in batch]
        for future, reading in zip(futures, readings, strict=True):
            future.set_result(reading)

    def _next_batch(self) -> list[tuple[bytes, LayerInput]]:
        with self._lock:
            batch, self._waiting = self._waiting[:BATCH_TEXTS], self._waiting[BATCH_TEXTS:]
            # Under the queue's lock: who enqueues after an empty batch starts the work anew.
            self._is_busy = bool(batch)
            done = [key for key, future in self._futures.items() if future.done()]
            for key in done[: max(0, len(done) - REMEMBERED)]:
                del self._futures[key]
            return batch

    def _fail(self, keys: Sequence[bytes], error: Exception) -> None:
        with self._lock:
            # A failure is not remembered, so that the next caller tries again.
            futures = [self._futures.pop(key) for key in keys]
        for future in futures:
            future.set_exception(error)
