"""A long text is cut into pieces that lose nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.errors import InputError
from promptguard.text.windows import windows

SENTENCE = "The quick survey of the harbour took all afternoon. "


@given(
    st.text(alphabet="ab .!?。\n", max_size=400),
    st.integers(4, 60),
    st.floats(0, 0.25),
)
def test_windows_cover_the_text_in_order(text: str, size: int, share: float) -> None:
    """Every character is in a window; none is longer than allowed; each is where it says."""
    found = list(windows(text, size, int(size * share)))
    assert found[0].start == 0
    assert found[-1].end == len(text)
    for window in found:
        assert window.text == text[window.start : window.end]
        assert len(window.text) <= size
    for before, after in pairwise(found):
        assert before.start < after.start <= before.end < after.end


def test_windows_end_with_sentences() -> None:
    """A cut falls between sentences where there are any."""
    found = list(windows(SENTENCE * 100, 500, 80))
    assert all(window.text.startswith("The quick") for window in found)
    assert all(window.text.rstrip().endswith("afternoon.") for window in found)


def test_a_sentence_at_any_place_is_whole_in_one_window() -> None:
    """What is cut at the end of one window stands whole in the next."""
    needle = "the needle that must be seen as one piece"
    for at in range(1500, 2600, 37):
        text = ("word " * 1000)[:at] + needle + " word" * 400
        assert any(needle in window.text for window in windows(text))


def test_a_text_without_spaces_is_cut_all_the_same() -> None:
    """Kana and base64 have no word ends; windows overlap there by exactly the overlap."""
    found = list(windows("あ" * 5000, 2000, 200))
    assert [(window.start, window.end) for window in found] == [
        (0, 2000),
        (1800, 3800),
        (3600, 5000),
    ]


def test_a_short_text_is_one_window() -> None:
    """Nothing is cut that fits, not even nothing."""
    assert list(windows("short")) == [(0, 5, "short")]
    assert list(windows("")) == [(0, 0, "")]


@pytest.mark.parametrize(("size", "overlap"), [(100, 26), (100, -1), (0, 0), (-4, 0)])
def test_windows_that_could_stall_are_an_input_error(size: int, overlap: int) -> None:
    """Windows must move on."""
    with pytest.raises(InputError, match="overlap"):
        next(windows("text", size, overlap))
