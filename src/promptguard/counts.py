"""Counts as sentences say them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 turn`, `2 turns`, `1,200 turns`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
