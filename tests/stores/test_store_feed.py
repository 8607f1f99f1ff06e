"""How changes are handed to readers."""

from __future__ import annotations

import asyncio
import gc

import pytest

from promptguard.errors import StoreError
from promptguard.protocols import SessionKey
from promptguard.stores import feed as feed_module
from promptguard.stores.feed import ChangeFeed


def key_of(name: str) -> SessionKey:
    return SessionKey(session_id=name)


async def test_a_key_waiting_to_be_read_is_not_queued_twice() -> None:
    """A slow reader gets each session once, in the order of the first unread save."""
    feed = ChangeFeed()
    reader = feed.subscribe()
    for name in ("a", "b", "a", "a"):
        feed.publish(key_of(name))
    await feed.close()
    assert [key.session_id async for key in reader] == ["a", "b"]


async def test_a_reader_far_behind_loses_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded whatever a reader does."""
    monkeypatch.setattr(feed_module, "MAX_PENDING", 3)
    feed = ChangeFeed()
    reader = feed.subscribe()
    for name in "abcde":
        feed.publish(key_of(name))
    await feed.close()
    assert [key.session_id async for key in reader] == ["c", "d", "e"]


async def test_a_reader_that_is_dropped_is_forgotten() -> None:
    """Nobody needs to unsubscribe."""
    feed = ChangeFeed()
    reader = feed.subscribe()
    assert feed.readers
    del reader
    gc.collect()
    assert not feed.readers


async def test_a_failing_watch_is_told_to_the_readers() -> None:
    """An error in the background does not look like silence."""

    async def watch() -> None:
        raise StoreError("gone")

    reader = ChangeFeed(watch).subscribe()
    with pytest.raises(StoreError, match="gone"):
        await asyncio.wait_for(anext(reader), 5)


async def test_a_watch_runs_once_for_all_readers_and_again_when_needed() -> None:
    """It starts with the first reader, is shared, and starts anew after it ended."""
    starts = 0

    async def watch() -> None:
        nonlocal starts
        starts += 1

    feed = ChangeFeed(watch)
    readers = [feed.subscribe(), feed.subscribe()]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert starts == 1
    readers.append(feed.subscribe())
    await asyncio.sleep(0)
    assert starts == 2
    await feed.close()
    with pytest.raises(StoreError, match="closed"):
        feed.subscribe()
