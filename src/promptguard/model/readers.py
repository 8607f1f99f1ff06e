"""The embedded readers: texts in, calibrated readings out.

The quick reader reads everything. The thorough one costs about six times as much and is asked
by the caller where the quick one is unsure or the stakes are high; its logits are then blended
with the quick one's. Of a text in another language each also reads an English gloss.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, overload

import numpy as np

from promptguard.conversation import Message, Role
from promptguard.errors import ModelError
from promptguard.model.artifact import (
    GLOSSARY,
    MESSAGE_OUTPUTS,
    PACKED,
    Artifact,
    bundled,
)
from promptguard.model.gloss import Glossary, load_glossary
from promptguard.model.network import (
    MAX_WINDOWS,
    SEP,
    USER,
    WINDOW,
    Floats,
    Network,
    Said,
    Window,
    WindowLogits,
    WordPairs,
    calibrated,
    context_window,
    document_windows,
    is_cut,
    is_document_cut,
    load_word_pairs,
    message_windows,
    shown_from,
)
from promptguard.model.reading import (
    GLOSS,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What is loaded; the networks load themselves when they are first asked."""

    tokenizer: Any
    pairs: WordPairs
    quick: Network
    thorough: Network | None
    glossary: Glossary | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A text as the quick reader sees it, window by window, and what both readers say of it."""

    tokens: _Tokens
    windows: list[list[int]]
    vector: Vector
    attack: Floats
    worst: int
    quick: Floats
    further: Floats | None


class Readers:
    """The shipped readers. Load on first use; safe to share between threads; deterministic."""

    def __init__(self, artifact: Artifact | None = None, *, threads: int = 1) -> None:
        self._artifact = artifact
        self._threads = threads
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

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
        quick, further = self._talk(said, opening, thorough)
        glossed = self._glossed_talk(kept, said)
        is_read = glossed is not None and self._is_doubtful(quick)
        if glossed is not None:
            own = quick, further
            other = self._talk(glossed, opening, thorough) if is_read else own
            quick, further = self._mixed(quick, other[0]), self._mixed(further, other[1])
        turn, session = self._blended(("turn", "session"), quick, further)
        return ContextReading(
            turn=turn,
            session=session,
            turns=sum(m.role is Role.USER for m in kept),
            is_truncated=shown_from(said, opening) > 0 or len(kept) < len(talk),
            readers=_asked(further, is_glossed=is_read),
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
        quick = self._open().quick
        return tuple(out.vector for out in quick.run([_spoken(ids) for ids in first]))

    def _message(self, text: str, thorough: bool) -> MessageReading:
        read = self._read(text, thorough)
        quick, further = read.quick, read.further
        gloss = self._gloss(text)
        is_read = gloss is not None and self._is_doubtful(quick[:1])
        if gloss is not None:
            other = self._read(gloss, thorough) if is_read else read
            quick, further = self._mixed(quick, other.quick), self._mixed(further, other.further)
        attack, manipulative, extractive, harmful = self._blended(MESSAGE_OUTPUTS, quick, further)
        alone = self.artifact.manifest.calibration["attack"].alone
        each = alone.probabilities(read.attack)
        ids = read.tokens.ids
        start, end = _place(read.tokens, read.windows[read.worst][1:-1])
        return MessageReading(
            attack=attack,
            manipulative=manipulative,
            extractive=extractive,
            harmful=harmful,
            windows=len(each),
            disagreement=max(each) - min(each),
            familiarity=1.0 - ids.count(UNKNOWN) / len(ids) if ids else 1.0,
            is_truncated=is_cut(len(ids)) or len(text) > MAX_CHARS,
            start=start,
            end=end,
            embedding=read.vector,
            readers=_asked(read.further, is_glossed=is_read),
        )

    def _read(self, text: str, thorough: bool) -> _Read:
        tokens = self._tokens(text)
        windows = message_windows(tokens.ids)
        opened = self._open()
        quick = opened.quick.run([_spoken(ids) for ids in windows])
        logits = np.stack([out.message for out in quick])
        logits = logits + np.stack([opened.pairs.logits(ids[1:-1]) for ids in windows])
        worst = int(logits[:, 0].argmax())
        # Of a long text the thorough reader, many times slower, reads the worst window only.
        further = self._further(_spoken(windows[worst]), thorough)
        return _Read(
            tokens=tokens,
            windows=windows,
            vector=quick[0].vector,
            attack=logits[:, 0],
            worst=worst,
            # Over all windows, because an injection hides in one of them.
            quick=logits.max(axis=0),
            further=None if further is None else further.message,
        )

    def _talk(
        self, said: Said, opening: Sequence[int], thorough: bool
    ) -> tuple[Floats, Floats | None]:
        quick, further = self._run(context_window(said, opening), thorough)
        return quick.context, None if further is None else further.context

    def _is_doubtful(self, own: Floats) -> bool:
        """Say whether a gloss could change anything; most ordinary texts are plain without one."""
        blend = self.artifact.manifest.gloss
        return blend is not None and float(own.max()) >= blend.from_logit

    def _gloss(self, text: str) -> str | None:
        glossary = self._open().glossary
        # Of a longer text the readers see the end as well, which a gloss of its head leaves out.
        return glossary.gloss(text) if glossary is not None and len(text) <= MAX_CHARS else None

    def _glossed_talk(self, talk: Sequence[Message], said: Said) -> Said | None:
        """Return the user's turns glossed, None where none of them is.

        Replies have no gloss; in their own language they would only make the window longer.
        """
        turns = [
            (ids, self._gloss(message.content))
            for message, (_, ids) in zip(talk, said, strict=True)
            if message.role is Role.USER
        ]
        if not any(gloss for _, gloss in turns):
            return None
        user = Role.USER.value
        return [(user, ids if gloss is None else self._tokens(gloss).ids) for ids, gloss in turns]

    @overload
    def _mixed(self, own: Floats, gloss: Floats | None) -> Floats: ...
    @overload
    def _mixed(self, own: None, gloss: Floats | None) -> None: ...
    def _mixed(self, own: Floats | None, gloss: Floats | None) -> Floats | None:
        if own is None or gloss is None:
            return own
        blend = self.artifact.manifest.gloss
        assert blend is not None  # without one there is no glossary
        share, scale = np.float32(blend.share), np.float32(blend.scale)
        return scale * ((1 - share) * own + share * gloss)

    def _document(self, task: list[int], text: str, thorough: bool) -> DocumentReading:
        tokens = self._tokens(text)
        windows = document_windows(task, tokens.ids)
        quick = [out.document for out in self._open().quick.run(windows)]
        worst = int(np.argmax(quick))
        further = self._further(windows[worst], thorough)
        word = None if further is None else (further.document,)
        (order,) = self._blended(("document",), (quick[worst],), word)
        # Each window begins with the user's request, which is not part of the document.
        ids, _ = windows[worst]
        start, end = _place(tokens, ids[ids.index(SEP) + 1 : -1])
        return DocumentReading(
            order=order,
            windows=len(windows),
            start=start,
            end=end,
            is_truncated=is_document_cut(task, len(tokens.ids)) or len(text) > MAX_CHARS,
            readers=_asked(further),
        )

    def _run(self, window: Window, thorough: bool) -> tuple[WindowLogits, WindowLogits | None]:
        (quick,) = self._open().quick.run([window])
        return quick, self._further(window, thorough)

    def _further(self, window: Window, thorough: bool) -> WindowLogits | None:
        """Return the thorough reader's logits for one window, where it is asked and installed."""
        reader = self._open().thorough
        return reader.run([window])[0] if thorough and reader is not None else None

    def _blended(
        self, names: Sequence[str], quick: Iterable[float], further: Iterable[float] | None
    ) -> tuple[float, ...]:
        fitted = self.artifact.manifest.calibration
        return calibrated([fitted[name] for name in names], quick, further)

    def _tokens(self, text: str) -> _Tokens:
        tokenizer = self._open().tokenizer
        if len(text) > MAX_CHARS:
            text = text[: MAX_CHARS // 2] + " " + text[-MAX_CHARS // 2 :]
        # The tokenizer takes UTF-8, which has no form for half a surrogate pair.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        encoded = tokenizer.encode(clean, add_special_tokens=False)
        return _Tokens(ids=encoded.ids, offsets=encoded.offsets)

    def _open(self) -> _Opened:
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


def _place(tokens: _Tokens, body: list[int]) -> tuple[int, int]:
    """Return the characters of a window's `body`, found by its tokens' place in the text."""
    size = len(body)
    if size == len(tokens.ids):
        return 0, tokens.offsets[-1][1] if tokens.offsets else 0
    # All of its tokens: a text may repeat those that a window begins with.
    begin = next(at for at in range(len(tokens.ids)) if tokens.ids[at : at + size] == body)
    return tokens.offsets[begin][0], tokens.offsets[begin + size - 1][1]


def _asked(further: object | None, *, is_glossed: bool = False) -> tuple[str, ...]:
    asked = (QUICK,) if further is None else (QUICK, THOROUGH)
    return (*asked, GLOSS) if is_glossed else asked


def _open(artifact: Artifact, threads: int) -> _Opened:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(artifact.checked("tokenizer.json")))
        pairs = load_word_pairs(artifact.checked("word_pairs.npz"))
        is_glossed = artifact.manifest.gloss is not None
        glossary = load_glossary(artifact.checked(GLOSSARY)) if is_glossed else None
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
    return _Opened(
        tokenizer=tokenizer, pairs=pairs, quick=quick, thorough=thorough, glossary=glossary
    )


__all__ = ["MAX_CHARS", "MAX_WINDOWS", "WINDOW", "Readers", "shared_readers"]
