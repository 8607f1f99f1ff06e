"""Labels that people gave to stored sessions become cases."""

from __future__ import annotations

from labelled import CALM, HOSTILE, open_fake

from promptguard.config import ControllerConfig
from promptguard.controller import Controller
from promptguard.conversation import Role
from promptguard.protocols import SessionKey, SessionLabel
from promptguard.stores.memory import MemoryStore
from promptguard.testing import ManualClock
from promptguard.turns.input import TurnInput
from promptguard.validation.dataset import labelled_sessions


async def talk(store: MemoryStore, name: str, *said: str, store_text: str = "keep") -> None:
    config = ControllerConfig(preset="strict", store="memory:", store_text=store_text)
    guard = Controller(config, store=store, judge=open_fake(config), clock=ManualClock())
    for text in said:
        await guard.judge_turn(name, TurnInput(text=text))


async def label(store: MemoryStore, name: str, verdict: str, at: float = 1.0) -> None:
    given = SessionLabel(verdict=verdict, author="a", timestamp=at)
    await store.put_label(SessionKey(session_id=name), given)


async def test_the_latest_verdict_counts_and_the_rest_is_left_alone() -> None:
    """Unlabelled sessions are no cases; those without text are counted."""
    store = MemoryStore()
    await talk(store, "one", CALM)
    await label(store, "one", "attack", 1.0)
    await label(store, "one", "False alarm", 2.0)
    await talk(store, "two", HOSTILE)
    await label(store, "two", "true attack")
    await talk(store, "three", CALM)
    await talk(store, "four", CALM, store_text="off")
    await label(store, "four", "attack")
    found = await labelled_sessions(store, first_index=10)
    assert {case.id: case.is_attack for case in found.cases} == {
        "default/one": False,
        "default/two": True,
    }
    assert sorted(case.index for case in found.cases) == [10, 11]
    assert found.without_text == 1


async def test_the_guards_own_refusal_is_no_evidence() -> None:
    """A refusal that the guard wrote is left out, else blocks would prove themselves."""
    store = MemoryStore()
    await talk(store, "one", *([HOSTILE] * 3))
    await label(store, "one", "attack")
    entries = await store.transcript(SessionKey(session_id="one"))
    assert any(entry.role is Role.ASSISTANT for entry in entries)
    (case,) = (await labelled_sessions(store)).cases
    assert all(message.role is Role.USER for message in case.messages)
