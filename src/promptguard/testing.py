"""Fakes for those who test with promptguard: a model, an upstream and a clock, all predictable."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from promptguard.conversation import Message, Role
from promptguard.errors import ProviderError
from promptguard.model.reading import (
    QUICK,
    THOROUGH,
    ContextReading,
    DocumentReading,
    MessageReading,
)
from promptguard.protocols import Completion
from promptguard.usage import Usage
from promptguard.vector import Vector

_WORD = re.compile(r"\w+")
_DIMENSIONS = 384


class ManualClock:
    """A clock that moves only when told to; call it for the time, `await sleep` to move it."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting, and note for how long."""
        self.slept.append(seconds)
        self.advance(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCall:
    """What a ScriptedProvider was asked."""

    messages: tuple[Message, ...]
    schema: Mapping[str, object] | None = None
    max_tokens: int | None = None
    is_stream: bool = False


class ScriptedProvider:
    """A Provider that gives prepared answers in order; an exception in the script is raised.

    When the script is used up it raises ProviderError, so a test notices a call too many.
    """

    def __init__(self, *script: str | Completion | Exception, name: str = "scripted/model") -> None:
        self._script = list(script)
        self.name = name
        self.calls: list[ProviderCall] = []
        self.is_closed = False

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, object] | None = None,
        max_tokens: int | None = None,
    ) -> Completion:
        """Return the next prepared answer."""
        self.calls.append(
            ProviderCall(messages=tuple(messages), schema=schema, max_tokens=max_tokens)
        )
        return self._next(messages)

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Yield the next prepared answer word by word."""
        self.calls.append(ProviderCall(messages=tuple(messages), is_stream=True))
        for piece in re.findall(r"\S+\s*|\s+", self._next(messages).text):
            yield piece

    async def close(self) -> None:
        """Note that it was closed."""
        self.is_closed = True

    def _next(self, messages: Sequence[Message]) -> Completion:
        if not self._script:
            raise ProviderError("The script is used up; give it one more answer.")
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Completion):
            return answer
        read = sum(len(_WORD.findall(message.content)) for message in messages)
        usage = Usage(calls=1, input_tokens=read, output_tokens=len(_WORD.findall(answer)))
        return Completion(text=answer, model=self.name, usage=usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeEncoder:
    """An Encoder that knows a few words instead of a language.

    Each listed word found in a text halves the remaining doubt: no word gives `floor`, one
    `(1 + floor) / 2`, and so on. A document gives orders by the words of manipulation and
    extraction. The thorough reader says what the quick one says. Vectors are bags of words, so
    texts with common words are near.
    """

    manipulative: tuple[str, ...] = ("ignore", "pretend", "jailbreak", "dan")
    extractive: tuple[str, ...] = ("reveal", "password", "secret", "prompt")
    harmful: tuple[str, ...] = ("bomb", "kill", "poison", "exploit", "bypass")
    floor: float = 0.02
    has_embeddings: bool = True

    def read_messages(
        self, texts: Sequence[str], *, thorough: bool = False
    ) -> tuple[MessageReading, ...]:
        """Judge each text by the words in it."""
        readings = tuple(self._read(text, thorough) for text in texts)
        if not self.has_embeddings:
            return readings
        return tuple(
            replace(reading, embedding=vector)
            for reading, vector in zip(readings, self.embed(texts), strict=True)
        )

    def read_context(
        self, messages: Sequence[Message], *, system: str = "", thorough: bool = False
    ) -> ContextReading:
        """Judge the last user turn by its words, and the session by all the user's words."""
        del system  # the developer's words are no evidence here
        said = [message.content for message in messages if message.role is Role.USER]
        return ContextReading(
            turn=self._read(said[-1] if said else "", thorough).attack,
            session=self._read(" ".join(said), thorough).attack,
            turns=len(said),
            readers=_readers(thorough),
        )

    def read_documents(
        self, contents: Sequence[str], *, task: str = "", thorough: bool = False
    ) -> tuple[DocumentReading, ...]:
        """Judge each content by its words, the task's left out."""
        # What the user asked for is no order of the document's own.
        asked = set(_words(task))
        orders = (*self.manipulative, *self.extractive)
        kept = [[word for word in _words(text) if word not in asked] for text in contents]
        return tuple(
            DocumentReading(
                order=self._score(words, orders), end=len(text), readers=_readers(thorough)
            )
            for text, words in zip(contents, kept, strict=True)
        )

    def embed(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return one unit vector per text; a text without words gets a fixed one."""
        return tuple(_bag_of_words(text) for text in texts)

    def _read(self, text: str, thorough: bool) -> MessageReading:
        words = _words(text)
        kinds = (self.manipulative, self.extractive, self.harmful)
        manipulative, extractive, harmful = (self._score(words, kind) for kind in kinds)
        return MessageReading(
            manipulative=manipulative,
            extractive=extractive,
            harmful=harmful,
            attack=max(manipulative, extractive, harmful),
            end=len(text),
            readers=_readers(thorough),
        )

    def _score(self, words: Sequence[str], kind: Sequence[str]) -> float:
        found = sum(word in kind for word in words)
        return 1.0 - (1.0 - self.floor) * 0.5**found


def _readers(thorough: bool) -> tuple[str, ...]:
    return (QUICK, THOROUGH) if thorough else (QUICK,)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _bag_of_words(text: str) -> Vector:
    vector = np.zeros(_DIMENSIONS, dtype=np.float32)
    # A zero vector has no direction and could not be divided by its length.
    for word in _words(text) or [""]:
        # The built-in hash of a string differs from process to process.
        digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=4).digest()
        vector[int.from_bytes(digest, "big") % _DIMENSIONS] += 1.0
    return vector / np.float32(np.linalg.norm(vector))
