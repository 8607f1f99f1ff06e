"""A reader of pairs of answers whose probabilities are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from promptguard.conversation import AnswerPair


@dataclass
class FakeAnswers:
    """Says of each pair what `says` says, and keeps the pairs it was asked about."""

    says: Callable[[AnswerPair], float]
    has_reversal: bool = True
    thresholds: dict[str, float] = field(
        default_factory=lambda: {"reversal": 0.8, "reversal_hint": 0.5}
    )
    asked: list[AnswerPair] = field(default_factory=list)

    def read_answers(self, pairs: Sequence[AnswerPair]) -> tuple[float, ...]:
        """Return what `says` says of each pair."""
        self.asked += pairs
        return tuple(map(self.says, pairs))
