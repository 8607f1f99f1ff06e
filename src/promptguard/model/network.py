"""The networks' side of the readers: windows of tokens in, calibrated probabilities out.

Text reaches the networks as windows of token ids: messages, conversations, untrusted documents.
Each exported network gives logits and a vector for a window; beside it a linear table over tokens
and neighbouring tokens is read. The encoder knows what a sentence is about, the table knows
wording; their errors differ, so that their sum is better than either. How much each reader counts
was fitted on data they did not see. Training and serving both cut windows and count tokens here,
so that the models see what they were taught.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from promptguard.computations import checkpoint
from promptguard.errors import ModelError
from promptguard.model.packing import read_packed
from promptguard.vector import Vector

# Ids of BERT's vocabulary, which the readers' own one extends.
CLS, SEP = 101, 102
WINDOW, STRIDE = 160, 120
# Enough for 6,000 tokens behind a long task: where every character is a token, as in Chinese, a
# segment of a text is read without gaps too.
MAX_WINDOWS = 66
# Replies fill a window up to 192 tokens: more of them told nothing on talks and took time.
CONTEXT, WITH_REPLIES = 256, 192
# Of a reply a few tokens are enough: both readers judged talks better with 14 than with 44.
SYSTEM_TOKENS, USER_TOKENS, ASSISTANT_TOKENS, LAST_TOKENS = 40, 48, 14, 80
TASK_TOKENS = 32
USER, ASSISTANT, SYSTEM, TOOL = range(4)
_SPEAKERS = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "tool": TOOL}
BUCKETS = 1 << 18
# The trained table is laid out by these numbers; with others every bucket is another one.
_FIRST, _SECOND, _ALONE, _MIX = (
    np.uint64(number)
    for number in (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xBF58476D1CE4E5B9,
    )
)
# The windows of a turn are asked for again when the thorough reader joins in, and a short first
# turn is its own conversation window. With fewer than the most windows of a text, the first of a
# full one would be gone by then, and after it each in its turn.
REMEMBERED = MAX_WINDOWS + 14

Floats = npt.NDArray[np.float32]
Window = tuple[list[int], list[int]]
"""Token ids, and who speaks each of them."""
Said = Sequence[tuple[str, Sequence[int]]]
"""Who spoke, and the tokens of it."""


def spread(count: int, limit: int) -> list[int]:
    """Return at most `limit` of the indices below `count`, evenly from the first to the last."""
    if count <= limit:
        return list(range(count))
    if limit == 1:
        return [0]
    return [round(index * (count - 1) / (limit - 1)) for index in range(limit)]


def starts_of(length: int, body: int, stride: int) -> list[int]:
    """Return where the windows of `body` tokens begin that cover `length` tokens."""
    if length <= body:
        return [0]
    starts = list(range(0, length - body + stride, stride))
    # The last window is moved back to the end of the text, so that it is as full as the others.
    starts[-1] = length - body
    return starts


def message_windows(ids: Sequence[int], limit: int = MAX_WINDOWS) -> list[list[int]]:
    """Cut a message into overlapping windows, each framed by CLS and SEP.

    Where more than `limit` windows would be needed, `limit` are spread evenly from the first to
    the last; `is_cut` says so.
    """
    body = WINDOW - 2
    starts = starts_of(len(ids), body, STRIDE)
    chosen = [starts[index] for index in spread(len(starts), limit)]
    return [[CLS, *ids[start : start + body], SEP] for start in chosen]


def is_cut(length: int, limit: int = MAX_WINDOWS) -> bool:
    """Say whether a message of `length` tokens needs more windows than are judged."""
    return length > WINDOW - 2 + (limit - 1) * STRIDE


def shorten(ids: Sequence[int], limit: int) -> list[int]:
    """Keep the head (two thirds) and the tail of a long turn."""
    if len(ids) <= limit:
        return list(ids)
    head = limit * 2 // 3
    return [*ids[:head], *ids[len(ids) - (limit - head) :]]


def document_windows(
    task: Sequence[int], ids: Sequence[int], limit: int = MAX_WINDOWS
) -> list[Window]:
    """Cut untrusted content into windows, each behind what the user asked for, shortened."""
    asked = [CLS, *shorten(task, TASK_TOKENS), SEP]
    body, stride = _document_steps(task)
    starts = starts_of(len(ids), body, stride)
    windows = []
    for index in spread(len(starts), limit):
        part = [*ids[starts[index] : starts[index] + body], SEP]
        windows.append(([*asked, *part], [USER] * len(asked) + [TOOL] * len(part)))
    return windows


def is_document_cut(task: Sequence[int], length: int, limit: int = MAX_WINDOWS) -> bool:
    """Say whether content of `length` tokens needs more windows behind `task` than are judged."""
    body, stride = _document_steps(task)
    return length > body + (limit - 1) * stride


def shown_from(said: Said, system: Sequence[int] = ()) -> int:
    """Return the index from which on `context_window` shows a talk; 0 where no turn is left out.

    Everything older than a turn that does not fit is left out too: the window shows the end of
    the talk without a gap.
    """
    room = _room(system)
    for index in reversed(range(len(said))):
        if said[index][0] != "assistant":
            room -= len(_piece(said, index))
            if room < 0:
                return index + 1
    return 0


def context_window(said: Said, system: Sequence[int] = ()) -> Window:
    """Lay the system prompt and the last turns out in one window, newest last.

    The system prompt and the assistant's turns are shortened most. What the user said has the room
    first, from the newest turn on. Replies to it come in as long as the window stays short.
    """
    pieces = {index: _piece(said, index) for index in range(shown_from(said, system), len(said))}
    kept = {index: piece for index, piece in pieces.items() if said[index][0] != "assistant"}
    room = _room(system) - sum(map(len, kept.values())) - (CONTEXT - WITH_REPLIES)
    for index in sorted(pieces.keys() - kept.keys(), reverse=True):
        if len(pieces[index]) <= room:
            room -= len(pieces[index])
            kept[index] = pieces[index]
    opening = _opening(system)
    tokens, speakers = [CLS, *opening], [USER] + [SYSTEM] * len(opening)
    for index, piece in sorted(kept.items()):
        tokens += piece
        speakers += [_SPEAKERS[said[index][0]]] * len(piece)
    return tokens, speakers


def _document_steps(task: Sequence[int]) -> tuple[int, int]:
    """Return how much of a document fits behind a task, and how far its windows lie apart."""
    body = WINDOW - min(len(task), TASK_TOKENS) - 3  # CLS, and SEP behind either part
    return body, body * 3 // 4


def _opening(system: Sequence[int]) -> list[int]:
    return [*shorten(system, SYSTEM_TOKENS), SEP] if system else []


def _room(system: Sequence[int]) -> int:
    return CONTEXT - 1 - len(_opening(system))


def _piece(said: Said, index: int) -> list[int]:
    role, ids = said[index]
    if role == "assistant":
        return [*shorten(ids, ASSISTANT_TOKENS), SEP]
    return [*shorten(ids, LAST_TOKENS if index == len(said) - 1 else USER_TOKENS), SEP]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLogits:
    """What a network says of one window: raw logits of every head, and a unit vector."""

    message: Floats
    context: Floats
    document: float
    vector: Vector


class Network:
    """An ONNX session with a short memory. Loads on first use; safe to share between threads."""

    def __init__(
        self,
        locate: Callable[[], Path],
        *,
        weights: Callable[[], Path] | None = None,
        threads: int = 1,
    ) -> None:
        """`locate` returns the checked file; it is called when the network is first needed.

        `weights` does the same for packed weights that are kept beside the graph.
        """
        self._locate = locate
        self._weights = weights
        self._threads = threads
        self._lock = threading.Lock()
        self._session: Any = None
        # A memory for each thread needs no lock.
        self._memory = threading.local()

    def run(self, windows: Sequence[Window]) -> list[WindowLogits]:
        """Return the logits of each window.

        One window a run: int8 activations are scaled over the whole batch, so that neighbours and
        padding would change a window's result, and padding short windows costs more than it saves.
        """
        return [self._one(window) for window in windows]

    def _one(self, window: Window) -> WindowLogits:
        memory: OrderedDict[tuple[tuple[int, ...], tuple[int, ...]], WindowLogits]
        memory = getattr(self._memory, "windows", None) or OrderedDict()
        self._memory.windows = memory
        key = (tuple(window[0]), tuple(window[1]))
        known = memory.get(key)
        if known is None:
            # A window takes milliseconds and a long text has hundreds: others wait for one at most.
            checkpoint()
            known = self._outputs(window)
            memory[key] = known
            if len(memory) > REMEMBERED:
                memory.popitem(last=False)
        return known

    def _outputs(self, window: Window) -> WindowLogits:
        ids = np.asarray([window[0]], dtype=np.int64)
        inputs = {
            "ids": ids,
            "speakers": np.asarray([window[1]], dtype=np.int64),
            "mask": np.ones_like(ids),
        }
        message, context, document, vector = self._load().run(None, inputs)
        return WindowLogits(
            message=message[0], context=context[0], document=float(document[0, 0]), vector=vector[0]
        )

    def _load(self) -> Any:
        if self._session is None:
            with self._lock:
                if self._session is None:
                    packed = None if self._weights is None else self._weights()
                    self._session = _open(self._locate(), packed, self._threads)
        return self._session


def _open(path: Path, packed: Path | None, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One thread for each worker is the best setting on small machines.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    weights = {} if packed is None else read_packed(packed)
    try:
        # Copied by the session; they need to live only until it is made.
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the library raises its own, undocumented types
        raise ModelError(
            f"The embedded model does not load ({type(error).__name__}); "
            "run `promptguard model verify`."
        ) from None
    # Dropped first, or there would be nothing to give back yet.
    del weights, values
    if packed is not None:
        _give_memory_back()
    return session


def _give_memory_back() -> None:
    """Return freed memory to the system, where the C library can: unpacking leaves 80 MB behind."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPairs:
    """One row per output, one column per bucket; `units` is what a 1 in each row is worth."""

    table: npt.NDArray[np.int8]
    units: npt.NDArray[np.float32]

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return what the wording adds to each output's logit."""
        found = buckets(ids)
        if not len(found):
            return np.zeros(len(self.units), dtype=np.float32)
        sums = self.table[:, found].sum(axis=1, dtype=np.float32)
        return np.asarray(sums * self.units / np.sqrt(len(found)), dtype=np.float32)


def load_word_pairs(path: Path) -> WordPairs:
    """Read a table; raises what numpy raises where the file is broken."""
    # A pickle in a model file could run code.
    with np.load(path, allow_pickle=False) as held:
        found = WordPairs(table=held["table"], units=held["units"])
    if found.table.dtype != np.int8 or found.table.shape != (len(found.units), BUCKETS):
        raise ValueError("not a table of word pairs")
    return found


def buckets(ids: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the distinct buckets of a text's tokens and of its neighbouring pairs."""
    tokens = np.asarray(ids, dtype=np.uint64)
    mixed = np.concatenate([tokens * _ALONE, (tokens[:-1] * _FIRST) ^ (tokens[1:] * _SECOND)])
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX
    mixed ^= mixed >> np.uint64(32)
    return np.unique(mixed & np.uint64(BUCKETS - 1)).astype(np.int64)


class Blend(BaseModel):
    """Log-odds = quick · its logit + thorough · its logit + shift."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    quick: float
    thorough: float = 0.0
    shift: float = 0.0

    def probability(self, quick: float, thorough: float = 0.0) -> float:
        """Return the calibrated probability of the readers' logits."""
        return sigmoid(self.quick * quick + self.thorough * thorough + self.shift)

    def probabilities(self, quick: Iterable[float]) -> list[float]:
        """Return the calibrated probability of each of the quick reader's logits."""
        return [self.probability(float(logit)) for logit in quick]


class Calibration(BaseModel):
    """One output's blend where the quick reader stands alone, and where both were asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    alone: Blend
    both: Blend


def calibrated(
    calibrations: Sequence[Calibration], quick: Iterable[float], thorough: Iterable[float] | None
) -> tuple[float, ...]:
    """Return the probabilities of several outputs; `thorough` is None where it was not asked."""
    if thorough is None:
        pairs = zip(calibrations, quick, strict=False)
        return tuple(each.alone.probability(float(logit)) for each, logit in pairs)
    both = zip(calibrations, quick, thorough, strict=False)
    return tuple(each.both.probability(float(one), float(two)) for each, one, two in both)


def sigmoid(value: float) -> float:
    """Return 1 / (1 + e^-value) without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)


def log_odds(probability: float) -> float:
    """Return the log-odds of a probability, held within finite bounds."""
    kept = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(kept / (1 - kept))
