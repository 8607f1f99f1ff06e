"""Positions in a shortened text lead back to the right characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptguard.text.origin import Origin, delete


def _cut(text: str, marks: list[bool]) -> tuple[str, Origin]:
    spans = [(i, i + 1) for i, mark in enumerate(marks[: len(text)]) if mark]
    return delete(text, spans)


@given(st.text(min_size=1, max_size=40), st.lists(st.booleans(), max_size=40))
def test_every_kept_character_is_found_again(text: str, marks: list[bool]) -> None:
    """A position of the shortened text maps to the same character of the original."""
    kept, origin = _cut(text, marks)
    for position, char in enumerate(kept):
        start, end = origin.span(position, position + 1)
        assert text[start:end] == char


@given(
    st.text(min_size=1, max_size=30),
    st.lists(st.booleans(), max_size=30),
    st.lists(st.booleans(), max_size=30),
)
def test_two_deletions_compose(text: str, first: list[bool], second: list[bool]) -> None:
    """The map through both steps equals one step after the other."""
    once, earlier = _cut(text, first)
    twice, later = _cut(once, second)
    both = later.after(earlier)
    for position, char in enumerate(twice):
        start, end = both.span(position, position + 1)
        assert text[start:end] == char
