"""The embedded encoder: texts in, calibrated readings out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from promptguard.conversation import Message, Role
from promptguard.errors import ModelError
from promptguard.model.artifact import OUTPUTS, Artifact, bundled
from promptguard.model.cutting import (
    CONTEXT,
    MAX_WINDOWS,
    WINDOW,
    context_window,
    is_cut,
    message_windows,
)
from promptguard.model.reading import ContextReading, MessageReading
from promptguard.model.word_pairs import WordPairs, load_word_pairs
from promptguard.vector import Vector

UNKNOWN = 100
# One window a run: int8 activations are scaled over the whole batch, so that neighbours and padding
# would change a window's result (by 0.015), and padding short windows costs more than it saves.
BATCH = 1
# The tokenizer is never given more than this, whatever the caller sends; the windows that are
# judged need about four characters a token.
MAX_CHARS = 40_000
CONTEXT_MESSAGES = 24
_Ids = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """The opened files; tokenizer and session are the libraries' own objects."""

    tokenizer: Any
    session: Any
    pairs: WordPairs


class LocalEncoder:
    """The shipped model. Loads on first use; safe to share between threads; deterministic."""

    def __init__(self, artifact: Artifact | None = None, *, threads: int = 1) -> None:
        self._artifact = artifact
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._latest = threading.local()

    @property
    def artifact(self) -> Artifact:
        """The files in use."""
        return self._artifact or bundled()

    @property
    def version(self) -> str:
        """The model's version, for cache keys and records."""
        return self.artifact.manifest.version

    def read_messages(self, texts: Sequence[str]) -> tuple[MessageReading, ...]:
        """Judge each text on its own, every window of it, up to the stated bound."""
        tokens = [self._tokens(text) for text in texts]
        windows = [message_windows(ids) for ids in tokens]
        flat = [(window, [0] * len(window)) for found in windows for window in found]
        message, _, vectors = self._run(flat)
        if flat:
            pairs = self._load().pairs
            message = message + np.stack([pairs.logits(window[1:-1]) for window, _ in flat])
        readings, start = [], 0
        for text, ids, found in zip(texts, tokens, windows, strict=True):
            end = start + len(found)
            readings.append(self._reading(text, ids, message[start:end], vectors[start:end]))
            start = end
        return tuple(readings)

    def read_context(self, messages: Sequence[Message]) -> ContextReading:
        """Judge the last turns of a conversation as one window."""
        kept = [m for m in messages if m.role is not Role.SYSTEM][-CONTEXT_MESSAGES:]
        said = [(m.role.value, self._tokens(m.content)) for m in kept]
        ids, speakers = context_window(said)
        _, context, _ = self._run([(ids, speakers)])
        probability = self.artifact.platt("context").probability(float(context[0, 0]))
        return ContextReading(
            attack=probability,
            turns=sum(m.role is Role.USER for m in kept),
            is_truncated=len(ids) >= CONTEXT - 1 or len(kept) < len(messages),
        )

    def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return the unit vector of each text's first window."""
        windows = [message_windows(self._tokens(text))[0] for text in texts]
        _, _, vectors = self._run([(window, [0] * len(window)) for window in windows])
        return tuple(vectors)

    def _reading(
        self,
        text: str,
        ids: _Ids,
        logits: npt.NDArray[np.float32],
        vectors: npt.NDArray[np.float32],
    ) -> MessageReading:
        platts = [self.artifact.platt(output) for output in OUTPUTS]
        highest = logits.max(axis=0)
        each = [platts[0].probability(float(value)) for value in logits[:, 0]]
        attack, manipulative, extractive, harmful = (
            platt.probability(float(value)) for platt, value in zip(platts, highest, strict=True)
        )
        return MessageReading(
            attack=attack,
            manipulative=manipulative,
            extractive=extractive,
            harmful=harmful,
            windows=len(each),
            disagreement=max(each) - min(each),
            familiarity=1.0 - ids.count(UNKNOWN) / len(ids) if ids else 1.0,
            is_truncated=is_cut(len(ids)) or len(text) > MAX_CHARS,
            embedding=vectors[0],
        )

    def _tokens(self, text: str) -> _Ids:
        tokenizer = self._load().tokenizer
        if len(text) > MAX_CHARS:
            text = text[: MAX_CHARS // 2] + " " + text[-MAX_CHARS // 2 :]
        clean = text.encode("utf-8", "replace").decode("utf-8")
        ids: _Ids = tokenizer.encode(clean, add_special_tokens=False).ids
        return ids

    def _run(
        self, windows: Sequence[tuple[_Ids, _Ids]]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        parts = [
            self._outputs(windows[start : start + BATCH]) for start in range(0, len(windows), BATCH)
        ]
        if not parts:
            width = (len(OUTPUTS), 1, 384)
            empty = [np.zeros((0, size), dtype=np.float32) for size in width]
            return empty[0], empty[1], empty[2]
        message, context, vectors = (np.concatenate(group) for group in zip(*parts, strict=True))
        return message, context, vectors

    def _outputs(self, windows: Sequence[tuple[_Ids, _Ids]]) -> Any:
        # A short first turn is its own conversation window: read as a message, then as context.
        windows_before, outputs = getattr(self._latest, "run", ((), ()))
        if windows_before != windows:
            outputs = self._load().session.run(None, _padded(windows))
            self._latest.run = (windows, outputs)
        return outputs

    def _load(self) -> _Loaded:
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = _open(self.artifact, self._threads)
        return self._loaded


@cache
def shared_encoder() -> LocalEncoder:
    """Return the process's encoder, so that the weights are in memory once."""
    return LocalEncoder()


def _open(artifact: Artifact, threads: int) -> _Loaded:
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        tokenizer = Tokenizer.from_file(str(artifact.folder / "tokenizer.json"))
        session = onnxruntime.InferenceSession(
            str(artifact.folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        pairs = load_word_pairs(artifact.folder / "word_pairs.npz")
    except Exception as error:  # the libraries raise their own, undocumented types
        raise ModelError(
            f"The embedded model does not load ({type(error).__name__}); "
            "run `promptguard model verify`."
        ) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _Loaded(tokenizer=tokenizer, session=session, pairs=pairs)


def _padded(windows: Sequence[tuple[_Ids, _Ids]]) -> dict[str, npt.NDArray[np.int64]]:
    shape = (len(windows), max(len(ids) for ids, _ in windows))
    ids, speakers, mask = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, (tokens, who) in enumerate(windows):
        ids[row, : len(tokens)] = tokens
        speakers[row, : len(who)] = who
        mask[row, : len(tokens)] = 1
    return {"ids": ids, "speakers": speakers, "mask": mask}


__all__ = ["MAX_CHARS", "MAX_WINDOWS", "WINDOW", "LocalEncoder", "shared_encoder"]
