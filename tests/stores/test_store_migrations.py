"""The list of schema steps."""

from __future__ import annotations

import pytest

from promptguard.errors import StoreError
from promptguard.stores.migrations import MIGRATIONS, pending


def test_steps_are_numbered_from_one_without_gaps() -> None:
    """The number of the last step is the number of steps, and each serves both databases."""
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert all(step.sqlite and step.postgres and step.purpose for step in MIGRATIONS)


def test_only_missing_steps_are_pending() -> None:
    """An empty store needs all steps, a current one none."""
    assert pending(0) == MIGRATIONS
    assert pending(len(MIGRATIONS)) == ()


def test_a_newer_schema_is_an_error() -> None:
    """What we do not know we do not touch."""
    with pytest.raises(StoreError, match="upgrade promptguard"):
        pending(len(MIGRATIONS) + 1)
