"""What the cascade passed on, what that cost and what it gained."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from promptguard.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeReport:
    """Counts over any number of questions; reports add up.

    A question in doubt is passed on, or withheld because the allowance is spent. `failed`
    were passed on without an answer. `changed` crossed the decision threshold by it.
    """

    judged: int = 0
    in_doubt: int = 0
    passed_on: int = 0
    withheld: int = 0
    failed: int = 0
    changed: int = 0
    doubt_before: float = 0.0
    doubt_after: float = 0.0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: CascadeReport) -> CascadeReport:
        sums = {
            item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)
        }
        return CascadeReport(**sums)

    @property
    def share_passed_on(self) -> float:
        """Share of questions that the next judge was asked."""
        return self.passed_on / self.judged if self.judged else 0.0

    @property
    def doubt_removed(self) -> float:
        """Mean indeterminacy that an answer took away, over those that came."""
        answered = self.passed_on - self.failed
        return (self.doubt_before - self.doubt_after) / answered if answered else 0.0
