"""Adds turns to one session as a guard does: load, change, save, and again on a conflict.

Run as `session_writer.py URL NAME COUNT` it prints a line for every acknowledged save.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from promptguard.conversation import Role
from promptguard.errors import VersionConflict
from promptguard.protocols import SessionKey, SessionStore
from promptguard.state import SessionState, TranscriptEntry
from promptguard.stores import open_store

KEY = SessionKey(session_id="shared")


async def add_turn(store: SessionStore, text: str) -> None:
    """Append one turn, whoever else is writing."""
    while True:
        state = await store.load(KEY) or SessionState(session_id=KEY.session_id)
        turns = state.profile.turns
        changed = replace(
            state, version=state.version + 1, profile=replace(state.profile, turns=turns + 1)
        )
        entry = TranscriptEntry(
            position=turns,
            turn=turns,
            role=Role.USER,
            content=text,
            content_hash="",
            timestamp=float(turns),
        )
        try:
            await store.save(changed, expected_version=state.version, entries=[entry])
        except VersionConflict:
            continue
        return


async def check_story(store: SessionStore, acknowledged: dict[str, int], unsure: int = 0) -> None:
    """Assert that every acknowledged turn is there once, in its writer's order.

    `unsure` is how many further turns may be there, of writers killed before the answer came.
    """
    state = await store.load(KEY)
    transcript = await store.transcript(KEY)
    assert state is not None
    assert [entry.position for entry in transcript] == list(range(state.profile.turns))
    assert state.version == state.profile.turns
    surplus = 0
    for writer, count in acknowledged.items():
        numbers = [
            int(entry.content.split()[1])
            for entry in transcript
            if entry.content and entry.content.split()[0] == writer
        ]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= count
        surplus += len(numbers) - count
    assert surplus <= unsure
    assert len(transcript) == sum(acknowledged.values()) + surplus


def start_writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    """Start this file as a process of its own."""
    command = [sys.executable, str(Path(__file__)), url, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read_acknowledgements(process: subprocess.Popen[str], count: int) -> int:
    """Wait for `count` lines and return how many came."""
    assert process.stdout is not None
    return sum(1 for _ in zip(range(count), process.stdout, strict=False))


def kill(process: subprocess.Popen[str]) -> int:
    """Kill without warning; return how many acknowledgements were still unread."""
    process.kill()
    process.wait(timeout=20)
    # Not `communicate`, which would miss the lines already in this file's buffer.
    assert process.stdout is not None
    with process.stdout:
        return process.stdout.read().count("\n")


def finish(process: subprocess.Popen[str]) -> int:
    """Wait for the end and return the number of acknowledgements."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.count("\n")


async def _main(url: str, name: str, count: int) -> None:
    store = open_store(url)
    for number in range(count):
        await add_turn(store, f"{name} {number}")
        print(number, flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
