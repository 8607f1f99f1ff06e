"""Operators' decisions in force, where something fails; what they do is in `test_what_if`."""

from __future__ import annotations

import asyncio

import pytest

from promptguard.decisions import AppliedSettings
from promptguard.errors import ModelError
from promptguard.service.decisions import Decisions


async def test_settings_that_fail_oddly_are_not_said_to_be_in_force(guarded, monkeypatch) -> None:
    """What was in force before still is, and is what the pages show."""
    guard = await guarded()

    def broken(_: object) -> None:
        raise ModelError("The reader failed.")

    monkeypatch.setattr("promptguard.service.settings.try_out", broken)
    with pytest.raises(ModelError):
        await guard.service.decisions.apply("boss", "default", guard.service.live.written, "strict")
    assert guard.service.decisions.applied == AppliedSettings()


async def test_other_processes_are_followed_whatever_fails(guarded, monkeypatch) -> None:
    """A reading that failed is tried again."""
    guard, reads = await guarded(), []

    async def broken() -> None:
        reads.append("read")
        raise OSError("gone")

    async def sleep(_: float) -> None:
        if len(reads) == 2:
            raise asyncio.CancelledError

    decisions = Decisions(guard.controller, guard.service.audit, clock=guard.clock, sleep=sleep)
    monkeypatch.setattr(guard.controller.store, "decisions", broken)
    with pytest.raises(asyncio.CancelledError):
        await decisions.follow()
    assert len(reads) == 2
