"""Words are compared without case and accents, and keep their script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.text.read import read_text
from promptguard.text.vocabulary import bare

RUSSIAN = st.text(alphabet="абвгдеёжзийклмнопрстуфхцчшщъыьэюяЁЖЙ", min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("Ёлка", "елка"), ("включён", "включен"), ("Café", "cafe"), ("Ünal", "unal")],
)
def test_accents_go_and_the_script_stays(word: str, expected: str) -> None:
    """Both spellings of a word become one, of letters of one script."""
    assert bare(word) == expected


@given(RUSSIAN)
def test_russian_stays_cyrillic(word: str) -> None:
    """No letter of a Russian word becomes a Latin look-alike."""
    assert all(unicodedata.name(char).startswith("CYRILLIC") for char in bare(word))


def test_reading_a_russian_text_keeps_it_cyrillic() -> None:
    """Nothing is undone or decoded where the letter ё is an ordinary one."""
    views = read_text("Ещё раз: самолёт уже ушёл, и всё решено")
    assert views.plain == views.original
    assert not views.disguises
    assert not views.decoded
