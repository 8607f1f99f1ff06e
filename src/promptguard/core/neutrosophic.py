"""The value of an evaluation: truth, indeterminacy, falsehood."""

from __future__ import annotations

from dataclasses import dataclass

from promptguard.errors import InputError


@dataclass(frozen=True, slots=True)
class Neutrosophic:
    """Three independent numbers in [0,1]; they need not sum to one.

    truth: a coherent, balanced request. indeterminacy: undecided. falsehood: a violation.
    """

    truth: float
    indeterminacy: float
    falsehood: float

    def __post_init__(self) -> None:
        for name in ("truth", "indeterminacy", "falsehood"):
            # So written that what is no number is refused too.
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must lie in [0, 1].")

    def as_tuple(self) -> tuple[float, float, float]:
        """Return (T, I, F)."""
        return (self.truth, self.indeterminacy, self.falsehood)
