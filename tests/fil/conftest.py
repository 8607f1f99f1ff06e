"""The whole layer, built once."""

from __future__ import annotations

import pytest

from promptguard.fil.engine import FrozenInstinct


@pytest.fixture(scope="session")
def layer() -> FrozenInstinct:
    return FrozenInstinct.load()
