"""Three guard processes over one PostgreSQL; one dies, the database restarts, clients retry."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet import measure, running_fleet

SESSIONS = 200
TURNS = 4


@pytest.mark.parametrize("sessions", [SESSIONS])
async def test_a_fleet_in_trouble_keeps_every_turn_once_and_in_order(
    sessions: int, postgres_server: Any, postgres_url: str, tmp_path: Path
) -> None:
    """SIGKILL to one of three, then a real restart of the database, amid all conversations."""
    killed: list[subprocess.Popen[str]] = []

    def restart() -> None:
        postgres_server.stop()
        postgres_server.start()

    with running_fleet(postgres_url, tmp_path) as guards:

        def kill() -> None:
            killed.append(guards[0].process)
            guards[0].process.kill()

        outcome = await measure(
            guards, postgres_url, sessions=sessions, turns=TURNS, troubles=(kill, restart)
        )
        assert [process.wait(10) for process in killed] == [-9]
        assert [guard.process.poll() for guard in guards[1:]] == [None, None]
    assert outcome.acknowledged == sessions * TURNS
    assert outcome.retried > 0
    assert outcome.is_sound, outcome
