"""The judgement of an answer, whole or as it grows: what it did, and whether it may be shown.

An answer is bad where the Frozen Instinct Layer finds a hard violation in it, where it gives the
system prompt away, and, in a conversation that is SUSPECT or worse, where it becomes operational
(steps, code or exact amounts) or reaches the layer's blocking score. Sentences that refuse are
left out of that, what follows them is not. Answers are read to their end in bounded memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from promptguard.core.prompt import without_lone_surrogates
from promptguard.fil.engine import FrozenInstinct
from promptguard.signals.replies import classify_reply
from promptguard.state import ReplyKind
from promptguard.text.read import read_text
from promptguard.turns.leaks import Protected, leak_in
from promptguard.verdict import Action, Mode

WATCH_FROM = Mode.SUSPECT
# Instructions fit in a few sentences; a window of this size, moved by less than half of
# itself, sees every one of them whole and keeps long answers cheap.
WINDOW_CHARS = 2000
_STEP_CHARS = 800
# Steps and amounts are counted over this much of an answer at a time.
_DETAIL_CHARS = 8000
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_NOTHING = Protected(runs=frozenset(), secrets=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyVerdict:
    """What an answer did, and what is done about it; `reason` is empty where it may pass.

    `leak` says what it gives away of the system prompt. In detect mode `is_enforced` is False.
    """

    kind: ReplyKind
    action: Action = Action.ALLOW
    reason: str = ""
    leak: str = ""
    is_enforced: bool = True

    @property
    def is_blocked(self) -> bool:
        """Whether the answer is to be kept from the user."""
        return self.is_enforced and self.action is Action.BLOCK


def judge_reply(
    text: str, instinct: FrozenInstinct, *, mode: Mode = Mode.SAFE, protected: Protected = _NOTHING
) -> ReplyVerdict:
    """Judge a whole answer given in a conversation that stands at `mode`."""
    watch = ReplyWatch(instinct, mode, protected=protected)
    is_bad = watch.feed(text)
    return ReplyVerdict(
        kind=classify_reply(text),
        action=Action.BLOCK if is_bad else Action.ALLOW,
        reason=watch.reason,
        leak=watch.leak,
    )


class ReplyWatch:
    """Reads one answer as it grows; `is_bad` stays true once it is."""

    def __init__(
        self, instinct: FrozenInstinct, mode: Mode, *, protected: Protected = _NOTHING
    ) -> None:
        self._instinct = instinct
        self._is_suspect = mode >= WATCH_FROM
        self._protected = protected
        # The end of what was read before: what is said across two pieces is read whole.
        self._tail = ""
        self.reason = ""
        self.leak = ""

    @property
    def is_bad(self) -> bool:
        """Whether the answer is to be cut."""
        return bool(self.reason)

    def feed(self, piece: str) -> bool:
        """Judge the answer with `piece` added to it; returns `is_bad`."""
        if self.is_bad or not piece:
            return self.is_bad
        known = len(self._tail)
        # Models send emoji in halves, one surrogate per chunk.
        text = without_lone_surrogates(self._tail + piece)
        self.reason = self._violation(text, known) or self._detail(text, known)
        self._tail = (self._tail + piece)[-_DETAIL_CHARS:]
        return self.is_bad

    def _violation(self, text: str, known: int) -> str:
        # Windows that end in text not read before; earlier ones were judged already.
        start = max(0, known - WINDOW_CHARS + _STEP_CHARS)
        for at in range(start, len(text), _STEP_CHARS):
            window = text[at : at + WINDOW_CHARS]
            self.leak = leak_in(window, self._protected)
            if self.leak:
                return self.leak
            reading = self._instinct.assess(read_text(_without_refusals(window)), now=0.0)
            if reading.is_hard:
                return "a hard violation"
            if self._is_suspect and reading.is_blocking and reading.violated:
                return "a violation in a suspect conversation"
            if at + WINDOW_CHARS >= len(text):
                break
        return ""

    def _detail(self, text: str, known: int) -> str:
        if not self._is_suspect:
            return ""
        step = _DETAIL_CHARS // 2
        for at in range(max(0, known - step), len(text), step):
            kind = classify_reply(_without_refusals(text[at : at + _DETAIL_CHARS]))
            if kind is ReplyKind.OPERATIONAL:
                return "operational detail in a suspect conversation"
            if at + _DETAIL_CHARS >= len(text):
                break
        return ""


def _without_refusals(text: str) -> str:
    """Return `text` without the sentences that refuse: they may name what they refuse."""
    if classify_reply(text) not in (ReplyKind.REFUSED, ReplyKind.PARTIAL):
        return text
    sentences = _SENTENCE_END.split(text)
    return "\n".join(s for s in sentences if classify_reply(s) is not ReplyKind.REFUSED)
