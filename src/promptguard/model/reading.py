"""What the embedded model says: probabilities, and how far they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from promptguard.vector import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReading:
    """One text judged alone: calibrated probabilities of three kinds of violation.

    `attack` is the calibrated probability that any of them holds. `disagreement` in [0,1] is
    how far the windows of a long text differ; `familiarity` in [0,1] is the share of the text
    that the vocabulary knows; `is_truncated` says that the bound on length was reached.
    """

    manipulative: float
    extractive: float
    harmful: float
    attack: float
    windows: int = 1
    disagreement: float = 0.0
    familiarity: float = 1.0
    is_truncated: bool = False
    embedding: Vector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReading:
    """A conversation window judged as a whole: probability that an attack is in progress."""

    attack: float
    turns: int
    is_truncated: bool = False
