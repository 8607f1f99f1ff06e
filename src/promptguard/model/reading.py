"""What the embedded readers say: calibrated probabilities, and how far they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from promptguard.vector import Vector

QUICK, THOROUGH, GLOSS = "quick", "thorough", "gloss"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReading:
    """One text judged alone: calibrated probabilities of three kinds of violation.

    `attack` is the calibrated probability that any of them holds. `disagreement` in [0,1] is
    how far the windows of a long text differ; `familiarity` in [0,1] is the share of the text
    that the vocabulary knows; `is_truncated` says that the bound on length was reached. `start`
    and `end` are the characters of the window that scored highest. `readers` were asked.
    """

    manipulative: float
    extractive: float
    harmful: float
    attack: float
    windows: int = 1
    disagreement: float = 0.0
    familiarity: float = 1.0
    is_truncated: bool = False
    start: int = 0
    end: int = 0
    embedding: Vector | None = None
    readers: tuple[str, ...] = (QUICK,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReading:
    """The last user turn in the light of the system prompt and of all before it.

    `turn` is the probability that answering it serves an attack, `session` that an attack was
    tried anywhere so far. `is_truncated` says that older turns were left out.
    """

    turn: float
    session: float
    turns: int
    is_truncated: bool = False
    readers: tuple[str, ...] = (QUICK,)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentReading:
    """Untrusted content beside the user's request: does it give orders of its own?

    `start` and `end` are the characters of the window that scored highest.
    """

    order: float
    windows: int = 1
    start: int = 0
    end: int = 0
    is_truncated: bool = False
    readers: tuple[str, ...] = (QUICK,)
