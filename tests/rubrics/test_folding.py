"""Folding keeps places."""

from hypothesis import given
from hypothesis import strategies as st

from promptguard.rubrics.folding import fold


@given(st.text())
def test_folding_keeps_the_length(text) -> None:
    """Places in the folded text are places in the original."""
    assert len(fold(text)) == len(text)


def test_folding_makes_quotes_widths_and_case_plain() -> None:
    """Curly apostrophes, full width letters and emphasis do not hide words."""
    assert fold("**SHOULDN’T** ＹＥＳ，") == "  shouldn't   yes,"
