"""The systemd unit starts the command that exists, confined."""

from pathlib import Path

import pytest

from promptguard.cli import cli
from promptguard.config import ServiceConfig

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "promptguard.service"


@pytest.fixture(scope="module")
def unit() -> dict[str, dict[str, str]]:
    """Sections with their settings; the last line of a repeated one counts."""
    sections: dict[str, dict[str, str]] = {}
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section[name] = value
    return sections


def test_it_starts_and_reloads_the_service(unit) -> None:
    """By a command that is registered, and the signal that reads the configuration again."""
    program, command = unit["Service"]["ExecStart"].split()
    assert program.endswith("/promptguard")
    assert command in cli.list_commands(None)
    assert unit["Service"]["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"]
    assert "PROMPTGUARD_CONFIG=" in unit["Service"]["Environment"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_turns_in_flight_have_time_to_finish(unit) -> None:
    """systemd waits longer than the service takes."""
    assert int(unit["Service"]["TimeoutStopSec"]) > ServiceConfig().shutdown_s


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("StateDirectoryMode", "0700"),
        ("UMask", "0077"),
    ],
)
def test_it_is_confined(unit, setting, value) -> None:
    """No privileges, no other user's files, its own folder for itself alone."""
    assert unit["Service"][setting] == value
