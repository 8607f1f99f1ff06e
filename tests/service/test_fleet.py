"""Three guard processes over one PostgreSQL; one dies, the database restarts, clients retry."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from guarded_service import fast_judge

from benchmarks.fleet import Talk, compared, measure, running_fleet
from promptguard.config import ControllerConfig
from promptguard.controller import Controller
from promptguard.stores import open_store
from promptguard.turns.input import TurnInput

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


@pytest.mark.parametrize(
    ("stored", "wrong"),
    [
        ("one two three", {}),
        ("one three", {"lost": 1, "miscounted": 1}),
        ("one two two three", {"doubled": 1, "miscounted": 1}),
        ("one three two", {"disordered": 1}),
        ("", {"lost": 3, "miscounted": 1}),
    ],
)
async def test_the_comparison_sees_what_is_wrong(stored: str, wrong: dict[str, int]) -> None:
    """A turn lost, doubled or out of place would not go unnoticed."""
    store = open_store("memory:")
    config = ControllerConfig(store="memory:")
    controller = Controller(config, store=store, judge=fast_judge(config))
    for text in stored.split():
        await controller.judge_turn("s", TurnInput(text=text))
    talk = Talk(guards=(), sessions=1, turns=3, acknowledged={"s": ["one", "two", "three"]})
    outcome = await compared(talk, store, 0.0)
    names = ("lost", "doubled", "disordered", "miscounted")
    found = {name: getattr(outcome, name) for name in names if getattr(outcome, name)}
    assert found == wrong
    assert outcome.is_sound is not bool(wrong)
