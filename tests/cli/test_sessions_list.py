"""`promptguard sessions list`: what its limit takes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from promptguard.cli.sessions import sessions


@pytest.mark.parametrize("limit", ["-3", "0"])
def test_a_limit_below_one_is_refused(limit: str) -> None:
    """It would list everything, or nothing."""
    result = CliRunner().invoke(sessions, ["list", "--limit", limit])
    assert result.exit_code == 2
    assert "x>=1" in result.output
