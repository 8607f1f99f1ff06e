"""Loading signals and their numbers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from promptguard.errors import ConfigError, DataError
from promptguard.signals import build, load_signals
from promptguard.signals.subject import vector_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    weight: float


def test_importing_the_package_loads_no_signal() -> None:
    """The registry is empty until it is asked for."""
    code = (
        "import sys, promptguard.signals as s;"
        "assert not [m for m in sys.modules if m.startswith('promptguard.signals.')];"
        "assert len(s.load_signals()) >= 11"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_unknown_signal_is_refused_with_the_known_ones() -> None:
    """A misspelt name is answered with the list."""
    with pytest.raises(ConfigError, match="known: behavior, coherence"):
        load_signals(("keyword",))


def test_signals_are_computed_after_those_they_read() -> None:
    """Scores are computed once, in the order of registration."""
    names = [name for name, _ in load_signals()]
    assert names.index("semantic") < names.index("session")
    assert max(names.index("trajectory"), names.index("information_gathering")) < names.index(
        "intent"
    )


def test_chosen_signals_keep_the_order_of_computation() -> None:
    """However a setting lists them, one reads what was computed before it, and each counts once."""
    names = [name for name, _ in load_signals(("session", "fil", "semantic", "session"))]
    assert names == ["semantic", "fil", "session"]


@pytest.mark.parametrize("table", [{}, {"weight": 1.0, "other": 2.0}, {"weight": "x"}, None])
def test_broken_numbers_are_named(table: object) -> None:
    """A table with missing, unknown or wrong values says where it is."""
    with pytest.raises(DataError, match=r"signals\.toml \[x\]"):
        build(table, _Numbers, where="signals.toml [x]")


@pytest.mark.parametrize("packed", ["", "not base64!", "AAAA", "é"])
def test_an_unreadable_embedding_is_as_good_as_none(packed: str) -> None:
    """A damaged vector in a stored state never stops a turn."""
    assert not vector_of(packed).any()
