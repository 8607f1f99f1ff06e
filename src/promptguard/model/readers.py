"""The embedded readers: texts in, calibrated readings out.

The quick reader reads everything. The thorough one costs about six times as much and is asked
by the caller where the quick one is unsure or the stakes are high; its logits are then blended
with the quick one's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from promptguard.conversation import Message, Role
from promptguard.errors import ModelError
from promptguard.model.artifact import MESSAGE_OUTPUTS, PACKED, Artifact, bundled
from promptguard.model.network import (
    MAX_WINDOWS,
    USER,
    WINDOW,
    Network,
    Window,
    WindowLogits,
    WordPairs,
    calibrated,
    context_window,
    document_windows,
    is_cut,
    load_word_pairs,
    message_windows,
    shown_from,
)
from promptguard.model.reading import (
    QUICK,
    THOROUGH,
    ContextReading,
    DocumentReading,
    MessageReading,
)
from promptguard.vector import Vector

# The id that BERT's vocabulary gives to what it does not know.
UNKNOWN = 100
# The tokenizer is never given more than this, whatever the caller sends: longer texts are cut into
# segments by the caller, who reads all of them.
MAX_CHARS = 40_000
CONTEXT_MESSAGES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokens:
    """A text as token ids, each with the characters it stands for."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class Readers:
    """The shipped readers. Load on first use; safe to share between threads; deterministic."""

    def __init__(self, artifact: Artifact | None = None, *, threads: int = 1) -> None:
        self._artifact = artifact
        self._threads = threads
        self._lock = threading.Lock()
        self._opened: tuple[Any, WordPairs, Network, Network | None] | None = None

    @property
    def artifact(self) -> Artifact:
        """The files in use."""
        return self._artifact or bundled()

    @property
    def version(self) -> str:
        """The model's version, for cache keys and records."""
        return self.artifact.manifest.version

    def read_messages(
        self, texts: Sequence[str], *, thorough: bool = False
    ) -> tuple[MessageReading, ...]:
        """Judge each text on its own, every window of it, up to the stated bound."""
        return tuple(self._message(text, thorough) for text in texts)

    def read_context(
        self, messages: Sequence[Message], *, system: str = "", thorough: bool = False
    ) -> ContextReading:
        """Judge the last user turn of a conversation as one window over all of it."""
        # Tool results are read by themselves, and the system prompt is given apart.
        talk = [m for m in messages if m.role in (Role.USER, Role.ASSISTANT)]
        kept = talk[-CONTEXT_MESSAGES:]
        said = [(m.role.value, self._tokens(m.content).ids) for m in kept]
        opening = self._tokens(system).ids if system else []
        window = context_window(said, opening)
        logits, further = self._run([window], [0], thorough)
        turn, session = self._blended(
            ("turn", "session"), logits[0].context, None if further is None else further.context
        )
        return ContextReading(
            turn=turn,
            session=session,
            turns=sum(m.role is Role.USER for m in kept),
            is_truncated=shown_from(said, opening) > 0 or len(kept) < len(talk),
            readers=_asked(further),
        )

    def read_documents(
        self, contents: Sequence[str], *, task: str = "", thorough: bool = False
    ) -> tuple[DocumentReading, ...]:
        """Judge untrusted contents that came for the user's `task`."""
        asked = self._tokens(task).ids
        return tuple(self._document(asked, text, thorough) for text in contents)

    def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return the unit vector of each text's first window."""
        first = [message_windows(self._tokens(text).ids)[0] for text in texts]
        quick = self._open()[2]
        return tuple(out.vector for out in quick.run([_spoken(ids) for ids in first]))

    def _message(self, text: str, thorough: bool) -> MessageReading:
        tokens = self._tokens(text)
        windows = message_windows(tokens.ids)
        pairs = self._open()[1]
        quick = self._open()[2].run([_spoken(ids) for ids in windows])
        logits = np.stack([out.message for out in quick])
        logits = logits + np.stack([pairs.logits(ids[1:-1]) for ids in windows])
        worst = int(logits[:, 0].argmax())
        # Of a long text the thorough reader, many times slower, reads the worst window only.
        further = self._further(_spoken(windows[worst]), thorough)
        # Over all windows, because an injection hides in one of them.
        highest = logits.max(axis=0)
        attack, manipulative, extractive, harmful = self._blended(
            MESSAGE_OUTPUTS, highest, None if further is None else further.message
        )
        alone = self.artifact.manifest.calibration["attack"].alone
        each = alone.probabilities(logits[:, 0])
        start, end = self._place(tokens, windows, worst)
        return MessageReading(
            attack=attack,
            manipulative=manipulative,
            extractive=extractive,
            harmful=harmful,
            windows=len(each),
            disagreement=max(each) - min(each),
            familiarity=1.0 - tokens.ids.count(UNKNOWN) / len(tokens.ids) if tokens.ids else 1.0,
            is_truncated=is_cut(len(tokens.ids)) or len(text) > MAX_CHARS,
            start=start,
            end=end,
            embedding=quick[0].vector,
            readers=_asked(further),
        )

    def _document(self, task: list[int], text: str, thorough: bool) -> DocumentReading:
        tokens = self._tokens(text)
        windows = document_windows(task, tokens.ids)
        quick = [out.document for out in self._open()[2].run(windows)]
        worst = int(np.argmax(quick))
        further = self._further(windows[worst], thorough)
        word = None if further is None else (further.document,)
        (order,) = self._blended(("document",), (quick[worst],), word)
        # Each window begins with the user's request, which is not part of the document.
        body = [[*ids[ids.index(102) + 1 :]] for ids, _ in windows]
        start, end = self._place(tokens, [[0, *ids] for ids in body], worst)
        return DocumentReading(
            order=order,
            windows=len(windows),
            start=start,
            end=end,
            is_truncated=len(windows) >= MAX_WINDOWS or len(text) > MAX_CHARS,
            readers=_asked(further),
        )

    def _place(self, tokens: _Tokens, windows: list[list[int]], worst: int) -> tuple[int, int]:
        """Return the characters of a window, found by its first tokens' place in the text."""
        if len(windows) == 1 or not tokens.ids:
            return 0, tokens.offsets[-1][1] if tokens.offsets else 0
        body = windows[worst][1:-1]
        size = len(body)
        last = len(tokens.ids) - size
        begin = next((i for i in range(max(0, last) + 1) if tokens.ids[i : i + 12] == body[:12]), 0)
        return tokens.offsets[begin][0], tokens.offsets[min(begin + size, len(tokens.ids)) - 1][1]

    def _run(
        self, windows: list[Window], chosen: list[int], thorough: bool
    ) -> tuple[list[WindowLogits], WindowLogits | None]:
        quick = self._open()[2].run(windows)
        return quick, self._further(windows[chosen[0]], thorough)

    def _further(self, window: Window, thorough: bool) -> WindowLogits | None:
        """Return the thorough reader's logits for one window, where it is asked and installed."""
        reader = self._open()[3]
        return reader.run([window])[0] if thorough and reader is not None else None

    def _blended(
        self, names: Sequence[str], quick: Iterable[float], further: Iterable[float] | None
    ) -> tuple[float, ...]:
        fitted = self.artifact.manifest.calibration
        return calibrated([fitted[name] for name in names], quick, further)

    def _tokens(self, text: str) -> _Tokens:
        tokenizer = self._open()[0]
        if len(text) > MAX_CHARS:
            text = text[: MAX_CHARS // 2] + " " + text[-MAX_CHARS // 2 :]
        # The tokenizer takes UTF-8, which has no form for half a surrogate pair.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        encoded = tokenizer.encode(clean, add_special_tokens=False)
        return _Tokens(ids=encoded.ids, offsets=encoded.offsets)

    def _open(self) -> tuple[Any, WordPairs, Network, Network | None]:
        if self._opened is None:
            with self._lock:
                # Another thread may have opened them while this one waited for the lock.
                if self._opened is None:
                    self._opened = _open(self.artifact, self._threads)
        return self._opened


@cache
def shared_readers() -> Readers:
    """Return the process's readers, so that the weights are in memory once."""
    return Readers()


def _spoken(ids: list[int]) -> Window:
    return ids, [USER] * len(ids)


def _asked(further: WindowLogits | None) -> tuple[str, ...]:
    return (QUICK,) if further is None else (QUICK, THOROUGH)


def _open(artifact: Artifact, threads: int) -> tuple[Any, WordPairs, Network, Network | None]:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(artifact.checked("tokenizer.json")))
        pairs = load_word_pairs(artifact.checked("word_pairs.npz"))
    except ModelError:
        raise
    except Exception as error:  # the libraries raise their own, undocumented types
        raise ModelError(
            f"The embedded model does not load ({type(error).__name__}); "
            "run `promptguard model verify`."
        ) from None
    # The base's own file pads and cuts every text to a fixed length.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Else a text that spells "[SEP]" could end a turn or the user's request in the window.
    tokenizer.encode_special_tokens = True
    quick = Network(partial(artifact.checked, "quick.onnx"), threads=threads)
    thorough = None
    if artifact.has_thorough:
        packed = partial(artifact.checked, PACKED) if PACKED in artifact.manifest.sha256 else None
        thorough = Network(
            partial(artifact.checked, "thorough.onnx"), weights=packed, threads=threads
        )
    return tokenizer, pairs, quick, thorough


__all__ = ["MAX_CHARS", "MAX_WINDOWS", "WINDOW", "Readers", "shared_readers"]
