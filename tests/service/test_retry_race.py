"""A client that gives up waiting asks another guard, while the first one is still at work."""

import asyncio

from promptguard.protocols import SessionKey
from promptguard.stores import open_store


def both_load_first(store) -> None:
    """Make the first two loads wait for each other, so that both see the session before."""
    barrier, load = asyncio.Barrier(2), store.load
    waits = iter((True, True))

    async def together(key: SessionKey):
        state = await load(key)
        if next(waits, False):
            await barrier.wait()
        return state

    store.load = together


async def race(guarded, *texts: str) -> list[str]:
    """Send texts at once to a guard each, in one session that has a turn; return what is stored."""
    store = open_store("memory:")
    guards = [await guarded(store=store) for _ in texts]
    asked = {"session_id": "s", "user_input": "What is a good soup?"}
    assert (await guards[0].client.post("/v1/guard/turn", json=asked)).status_code == 200
    both_load_first(store)
    answers = await asyncio.gather(
        *(
            guard.client.post("/v1/guard/turn", json={"session_id": "s", "user_input": text})
            for guard, text in zip(guards, texts, strict=True)
        )
    )
    assert [answer.status_code for answer in answers] == [200] * len(texts)
    entries = await store.transcript(SessionKey(session_id="s"))
    return [entry.content for entry in entries]


async def test_a_retry_that_overtakes_its_first_attempt_is_counted_once(guarded) -> None:
    """Both guards answer, one turn is recorded."""
    stored = await race(guarded, "And with bread?", "And with bread?")
    assert stored == ["What is a good soup?", "And with bread?"]


async def test_two_turns_at_once_are_both_counted(guarded) -> None:
    """Different words are no retry."""
    stored = await race(guarded, "And with bread?", "And with rice?")
    assert sorted(stored[1:]) == ["And with bread?", "And with rice?"]
