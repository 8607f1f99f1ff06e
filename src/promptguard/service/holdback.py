"""Chunks of a stream waiting to be shown: nothing leaves before what follows it was read."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from promptguard.service.completion import Answer

JUDGE_EVERY_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    data: str
    text: str
    end: int


class HoldBack:
    """Keeps the last `chars` characters of an answer back until it ends.

    Feed chunks with `take`; when `is_due`, judge `shown`; then `release` what may go. With
    `chars` 0 everything may go at once and is judged as it passes.
    """

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._held: deque[_Held] = deque()
        self._shown: dict[int, list[str]] = {}
        self._text: list[str] = []
        self._sent: list[str] = []
        self._length = 0
        self._judged = 0

    @property
    def answers(self) -> tuple[str, ...]:
        """Everything each choice shows so far."""
        return tuple("".join(parts) for _, parts in sorted(self._shown.items()))

    @property
    def text(self) -> str:
        """The answer proper of the first choice so far."""
        return "".join(self._text)

    @property
    def sent(self) -> str:
        """What of it was released."""
        return "".join(self._sent)

    @property
    def is_due(self) -> bool:
        """Whether enough has come to judge again."""
        return self._length - self._judged >= (self._chars or JUDGE_EVERY_CHARS)

    def take(self, data: str, answer: Answer) -> None:
        """Add a chunk, given as it came and as it was read."""
        said = ""
        for piece in answer.pieces:
            self._shown.setdefault(piece.index, []).append(piece.shown)
            self._length += len(piece.shown)
            if piece.index == 0:
                said += piece.text
        self._text.append(said)
        self._held.append(_Held(data=data, text=said, end=self._length))

    def judged(self) -> None:
        """Note that everything so far was read and is in order."""
        self._judged = self._length

    def release(self, *, everything: bool = False) -> list[str]:
        """Return the chunks that may go now, in order."""
        limit = self._length if everything or not self._chars else self._judged - self._chars
        gone = []
        while self._held and self._held[0].end <= max(limit, 0):
            held = self._held.popleft()
            gone.append(held.data)
            self._sent.append(held.text)
        return gone
