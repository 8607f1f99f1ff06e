"""Time grows in step with the length of a text, whatever it is made of."""

from __future__ import annotations

import re

import pytest

from benchmarks.linear_time import FAMILIES, FUNCTIONS, QUICK, measure


@pytest.mark.parametrize("function", FUNCTIONS)
def test_twice_the_text_takes_about_twice_the_time(function: str) -> None:
    """No function takes much more than double for double the length, on any hostile family."""
    FUNCTIONS[function]("warm")
    found = [measure(length, function, family) for family in FAMILIES for length in QUICK]
    assert [ratio for ratio in found if not ratio.is_linear] == []


def test_quadratic_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression that starts over at every letter fails the measure."""
    quadratic = re.compile("[a-z]*[0-9]")
    monkeypatch.setitem(FUNCTIONS, "quadratic", quadratic.search)
    # A busy machine may slow the shorter of the two runs; it does not do so each time.
    measured = (measure(8_000, "quadratic", "letters, then an accent") for _ in range(4))
    assert any(not found.is_linear for found in measured)
