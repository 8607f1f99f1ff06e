"""Counts in messages, on pages and in reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import promptguard
from promptguard.counts import counted

PACKAGE = Path(promptguard.__file__).parent
_NOUNS = (
    "attack|call|case|conversation|example|file|judgement|model|record|request|session|topic|turn"
)
# A count that a sentence holds as it is; constants, which are never one, are in capitals.
_PLAIN = re.compile(rf"\{{[^{{}}]*[a-z)][^{{}}]*\}}+( [a-z]+)? ({_NOUNS})s\b")
_WRITTEN = [
    *PACKAGE.rglob("*.py"),
    *PACKAGE.glob("data/dashboard/templates/*"),
    *PACKAGE.glob("data/templates/*"),
]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 turns"), (1, "1 turn"), (2, "2 turns"), (1200, "1,200 turns")]
)
def test_a_count_fits_its_noun(count: int, text: str) -> None:
    """One is one, and thousands are set apart."""
    assert counted(count, "turn") == text


def test_no_sentence_says_1_turns() -> None:
    """Numbers before a noun go through `counted`, in code and templates alike."""
    plain = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in _WRITTEN
        for match in _PLAIN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not plain
