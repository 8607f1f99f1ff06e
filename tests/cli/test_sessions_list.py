"""`promptguard sessions list`: what its limit takes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from promptguard.cli.sessions import sessions


@pytest.mark.parametrize("limit", ["-3", "0", "9" * 20])
def test_a_limit_out_of_range_is_refused(limit: str) -> None:
    """It would list everything or nothing, or be more than a store can count."""
    result = CliRunner().invoke(sessions, ["list", "--limit", limit])
    assert result.exit_code == 2
    assert "1<=x<=1000000" in result.output
