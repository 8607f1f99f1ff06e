"""Long sequences are cut so that every part is seen, or the answer says that it was not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.errors import InputError
from promptguard.text.windows import cut


def test_a_short_sequence_is_one_window() -> None:
    """What fits is not cut."""
    assert cut(5, 8, 4, 10) == (((0, 5),), False)
    assert cut(0, 8, 4, 10) == ((), False)


def test_windows_overlap_and_end_at_the_end() -> None:
    """Strides are kept but for the last window, which ends with the sequence."""
    assert cut(10, 4, 3, 10) == (((0, 4), (3, 7), (6, 10)), False)
    assert cut(11, 4, 3, 10)[0][-1] == (7, 11)


def test_beyond_the_bound_both_ends_are_kept() -> None:
    """Too long a sequence is sampled evenly, and the answer says so."""
    spans, was_hit = cut(1000, 10, 5, 4)
    assert was_hit
    assert len(spans) == 4
    assert spans[0] == (0, 10)
    assert spans[-1] == (990, 1000)
    assert cut(1000, 10, 5, 1) == (((0, 10),), True)


@given(st.integers(1, 2000), st.integers(1, 64), st.integers(1, 64), st.integers(2, 40))
def test_every_item_is_covered_unless_told(length: int, size: int, stride: int, limit: int) -> None:
    """Without the bound hit, the windows cover everything; ends are always covered."""
    spans, was_hit = cut(length, size, min(stride, size), limit)
    assert len(spans) <= limit
    assert spans[0][0] == 0
    assert spans[-1][1] == length
    if not was_hit:
        assert all(start <= end for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("arguments", [(10, 0, 1, 1), (10, 4, 5, 1), (10, 4, 0, 1), (10, 4, 2, 0)])
def test_impossible_windows_are_an_input_error(arguments: tuple[int, int, int, int]) -> None:
    """Sizes and bounds must make sense."""
    with pytest.raises(InputError):
        cut(*arguments)
