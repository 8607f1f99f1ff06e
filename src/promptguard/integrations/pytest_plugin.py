"""pytest: the fixture `promptguard` is a Guard, for tests of prompts, replies and tool results.

`@pytest.mark.promptguard(preset="strict")` gives its settings; `-p no:promptguard` turns it off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a plugin must not slow down the start of every test run
    from promptguard.guard import Guard


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "promptguard(**settings): settings of the conversation for the guard"
    )


@pytest.fixture
def promptguard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    """Return a guard with sessions of its own, by the settings of the test's marker."""
    from promptguard.config import ControllerConfig
    from promptguard.guard import Guard

    marker = request.node.get_closest_marker("promptguard")
    with Guard(ControllerConfig(**(marker.kwargs if marker else {}))) as guard:
        yield guard
