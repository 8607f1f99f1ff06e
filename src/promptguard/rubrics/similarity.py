"""Whether two statements are about one question, by the likeness of their embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptguard.rubrics.comparison import SameQuestion
from promptguard.rubrics.patterns import shipped_patterns
from promptguard.vector import Vector, cosine

Embed = Callable[[Sequence[str]], Sequence[Vector]]


def same_question_by(embed: Embed, *, min_cosine: float | None = None) -> SameQuestion:
    """Return a judge that embeds both texts and compares their cosine with `min_cosine`.

    Without `min_cosine` the shipped threshold holds.
    """
    least = shipped_patterns().min_cosine if min_cosine is None else min_cosine

    def same_question(first: str, second: str) -> bool:
        left, right = embed((first, second))
        return cosine(left, right) >= least

    return same_question
