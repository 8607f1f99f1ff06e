"""When an answer of the model is cut short.

The rule: an answer is cut where the Frozen Instinct Layer finds a hard violation in it, and,
in a conversation that is SUSPECT or worse, where it becomes operational (steps, code or exact
amounts) or reaches the layer's blocking score. A refusal is never cut.
"""

from __future__ import annotations

from promptguard.fil.engine import FrozenInstinct
from promptguard.signals.replies import classify_reply
from promptguard.state import Mode, ReplyKind
from promptguard.text.read import read_text

WATCH_FROM = Mode.SUSPECT
# Instructions are told in a few sentences; a window of this size, moved by less than half of
# itself, sees every one of them whole and keeps long answers cheap.
WINDOW_CHARS = 2000
_STEP_CHARS = 800


class ReplyWatch:
    """Reads one answer as it grows; `is_bad` stays true once it is."""

    def __init__(self, instinct: FrozenInstinct, mode: Mode) -> None:
        self._instinct = instinct
        self._is_suspect = mode >= WATCH_FROM
        self._read = 0
        self.reason = ""

    @property
    def is_bad(self) -> bool:
        """Whether the answer is to be cut."""
        return bool(self.reason)

    def judge(self, text: str) -> bool:
        """Judge the answer so far, of which `text` is all; returns `is_bad`."""
        if self.is_bad or len(text) <= self._read:
            return self.is_bad
        kind = classify_reply(text)
        if kind is not ReplyKind.REFUSED:
            if self._is_suspect and kind is ReplyKind.OPERATIONAL:
                self.reason = "operational detail in a suspect conversation"
            else:
                self.reason = self._violation(text)
        self._read = len(text)
        return self.is_bad

    def _violation(self, text: str) -> str:
        start = max(0, self._read - WINDOW_CHARS + _STEP_CHARS)
        for at in range(start, len(text), _STEP_CHARS):
            found = self._instinct.assess(read_text(text[at : at + WINDOW_CHARS]), now=0.0)
            if found.is_hard:
                return "a hard violation"
            if self._is_suspect and found.is_blocking and found.violated:
                return "a violation in a suspect conversation"
            if at + WINDOW_CHARS >= len(text):
                break
        return ""
