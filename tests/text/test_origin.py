"""Spans of an edited text lead back to the right characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptguard.text.origin import Edit, Origin, edit, through

TEXTS = st.text(alphabet="abcde ", max_size=40)


@st.composite
def edited_texts(draw: st.DrawFn) -> tuple[str, list[Edit]]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edits: list[Edit] = [
        (start, end, draw(st.text(alphabet="XYZ", max_size=3)))
        for start, end in zip(cuts[::2], cuts[1::2], strict=False)
        if start < end
    ]
    return text, edits


def _apply(text: str, edits: list[Edit]) -> str:
    for start, end, replacement in reversed(edits):
        text = text[:start] + replacement + text[end:]
    return text


@given(edited_texts())
def test_edits_are_made_in_place(given_text: tuple[str, list[Edit]]) -> None:
    """The result is what making the edits one by one, from the end, would give."""
    text, edits = given_text
    assert edit(text, edits)[0] == _apply(text, edits)


@given(edited_texts())
def test_every_kept_character_is_found_again(given_text: tuple[str, list[Edit]]) -> None:
    """A character that was copied maps to itself, a replaced one into what it replaced."""
    text, edits = given_text
    result, origin = edit(text, edits)
    for position, char in enumerate(result):
        start, end = origin.span(position, position + 1)
        if char in "XYZ":
            assert any(first <= start < end <= last for first, last, _ in edits)
        else:
            assert text[start:end] == char


@given(edited_texts(), st.integers(0, 60), st.integers(1, 60))
def test_a_span_covers_what_its_characters_cover(
    given_text: tuple[str, list[Edit]], start: int, length: int
) -> None:
    """The source of a span begins with that of its first character and ends with its last's."""
    text, edits = given_text
    result, origin = edit(text, edits)
    if start + length > len(result):
        return
    first, last = origin.span(start, start + 1), origin.span(start + length - 1, start + length)
    assert origin.span(start, start + length) == (first[0], last[1])


def test_several_edits_are_undone_last_first() -> None:
    """A span is followed back through every step."""
    once, first = edit("a-b-c", [(1, 2, ""), (3, 4, "")])
    twice, second = edit(once, [(0, 1, "xy")])
    assert twice == "xybc"
    assert through((second, first), 2, 4) == (2, 5)


def test_an_unedited_text_is_its_own_source() -> None:
    """No edits, no map."""
    assert edit("same", []) == ("same", Origin())
    assert Origin().span(1, 3) == (1, 3)
