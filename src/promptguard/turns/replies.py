"""The judgement of one answer: what it did with the request, and whether it may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from promptguard.fil.engine import FrozenInstinct
from promptguard.signals.replies import classify_reply
from promptguard.state import ReplyKind
from promptguard.text.read import read_text
from promptguard.text.windows import windows
from promptguard.verdict import Action, Mode

SUSPECT_FROM = Mode.SUSPECT
# Instructions fit in a few sentences; a window of this size sees every one of them whole.
WINDOW_CHARS = 2000
# Shorter runs of words are common to texts that have nothing to do with each other.
_RUN_WORDS = 8
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyVerdict:
    """What an answer did, and what is done about it; `reason` is empty where it may pass.

    `leak` is the share of the system prompt that the answer repeats word for word; it is
    measured and decides nothing. In detect mode `is_enforced` is False.
    """

    kind: ReplyKind
    action: Action = Action.ALLOW
    reason: str = ""
    leak: float = 0.0
    is_enforced: bool = True

    @property
    def is_blocked(self) -> bool:
        """Whether the answer is to be kept from the user."""
        return self.is_enforced and self.action is Action.BLOCK


def judge_reply(
    text: str, instinct: FrozenInstinct, *, mode: Mode = Mode.SAFE, system: str = ""
) -> ReplyVerdict:
    """Judge an answer given in a conversation that stands at `mode`.

    A hard violation is always bad. Where the conversation is suspect, so is operational detail
    (steps, code, exact amounts) and what reaches the rules' blocking score. A refusal never is.
    """
    kind = classify_reply(text)
    if kind is ReplyKind.REFUSED:
        return ReplyVerdict(kind=kind, leak=_leak(text, system))
    is_suspect = mode >= SUSPECT_FROM
    reason = _violation(text, instinct, is_suspect=is_suspect)
    if not reason and is_suspect and kind is ReplyKind.OPERATIONAL:
        reason = "operational detail in a suspect conversation"
    return ReplyVerdict(
        kind=kind,
        action=Action.BLOCK if reason else Action.ALLOW,
        reason=reason,
        leak=_leak(text, system),
    )


def _violation(text: str, instinct: FrozenInstinct, *, is_suspect: bool) -> str:
    for piece in windows(text, size=WINDOW_CHARS):
        reading = instinct.assess(read_text(piece.text), now=0.0, use_temporal=False)
        if reading.is_hard:
            return "a hard violation"
        if is_suspect and reading.is_blocking and reading.violated:
            return "a violation in a suspect conversation"
    return ""


def _leak(text: str, system: str) -> float:
    known = _runs(system)
    return len(known & _runs(text)) / len(known) if known else 0.0


def _runs(text: str) -> frozenset[tuple[str, ...]]:
    words = [word.casefold() for word in _WORD.findall(text)]
    size = min(_RUN_WORDS, len(words))
    return frozenset(tuple(words[at : at + size]) for at in range(len(words) - size + 1) if size)
