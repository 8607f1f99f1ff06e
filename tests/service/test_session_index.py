"""Which session a request belongs to: ids, chains, and what the index remembers."""

import threading
from typing import Any

import pytest
from stored_values import make_entry

from promptguard.conversation import ComparableMessage, Role
from promptguard.protocols import SessionKey
from promptguard.queries import plain_id
from promptguard.service.auth import Principal
from promptguard.service.history import Comparison, compare
from promptguard.service.sessions import (
    DIGEST_BYTES,
    MAX_ALIKE,
    MAX_VIEW_BYTES,
    Owner,
    SeenView,
    SessionFinder,
    SessionIndex,
    chain_of,
    given_session_id,
    view_of,
)
from promptguard.state import SessionState
from promptguard.stores.memory import MemoryStore

ANA = Owner(principal=Principal(name="ana", tenant="a"))
BEN = Owner(principal=Principal(name="ben", tenant="a"))


def user(text: str) -> ComparableMessage:
    return ComparableMessage.of(Role.USER, text)


def answer(text: str) -> ComparableMessage:
    return ComparableMessage.of(Role.ASSISTANT, text)


async def found(index: SessionIndex, owner: Owner, *messages: ComparableMessage) -> SessionKey:
    finder = SessionFinder(MemoryStore(), index)
    async with finder.find(owner, messages, view_of(messages), session_id=None) as key:
        return key


def remember(index: SessionIndex, owner: Owner, name: str, *messages: ComparableMessage) -> None:
    key = SessionKey(session_id=name, tenant=owner.tenant)
    seen = SeenView(view=view_of(messages), message_count=len(messages))
    index.remember(owner, key, seen, is_chained=True)


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"x-session": "h1"}, {"user": "b1"}, "h1"),
        ({}, {"user": "b1"}, "b1"),
        ({}, {"metadata": {"session": "deep"}}, "deep"),
        ({}, {"user": 17}, "17"),
        ({}, {"user": True}, None),
        ({"x-session": "  "}, {"metadata": "no object"}, None),
    ],
)
def test_the_first_place_that_names_a_session_counts(
    headers: dict, body: dict, expected: str | None
) -> None:
    """Headers and fields are looked up in the configured order."""
    places = ("header:X-Session", "body:metadata.session", "body:user")
    assert given_session_id(places, headers, body) == expected


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("a.b:c@d=1+2-3", "a.b:c@d=1+2-3"),
        ("team/ü 1", "team~2F~C3~BC~201"),
        ("../etc\r\nset-cookie: x", "..~2Fetc~0D~0Aset-cookie:~20x"),
        ("50%", "50~25"),
        ("~ a", "~7E~20a"),
        ("\ud800", "~ED~A0~80"),
    ],
)
def test_an_odd_id_becomes_a_safe_one_that_can_be_read(given: str, plain: str) -> None:
    """It stays the same when a client sends back the id that it was told."""
    assert plain_id(given) == plain
    assert plain_id(plain) == plain


def test_a_long_id_becomes_a_short_one() -> None:
    """The same for the same id, another for another."""
    assert plain_id("a" * 128) == "a" * 128
    assert plain_id("ü" * 50).startswith("x-")
    assert plain_id("ü" * 50) == plain_id("ü" * 50)
    assert plain_id("a" * 129) != plain_id("a" * 130)


def test_a_key_cannot_name_another_keys_session() -> None:
    """The key's name is part of the stored id, and so is a proxy's own key, hashed."""
    proxied = Owner(principal=ANA.principal, caller_key="secret")
    names = {ANA.bound("s"), BEN.bound("s"), proxied.bound("s")}
    assert len(names) == 3
    assert not any("secret" in name for name in names)
    assert Owner(principal=Principal()).bound("s") == "s"
    borrowed = proxied.bound("s").removeprefix("ana:")
    assert plain_id(borrowed) == borrowed
    assert ANA.bound(borrowed) not in names


def test_a_view_has_one_digest_per_message_with_text() -> None:
    """Who said it matters; what is empty does not."""
    assert len(view_of([user("a"), answer("b"), user("")])) == 2 * DIGEST_BYTES
    assert view_of([user("a")]) != view_of([answer("a")])
    assert chain_of(ANA, view_of([user("a")])) != chain_of(BEN, view_of([user("a")]))


def test_no_two_messages_with_one_digest_can_be_found() -> None:
    """A digest of 64 bits has collisions within an hour; one message would pass for the other."""
    assert len(view_of([user("hi")])) * 8 >= 128


async def test_a_conversation_goes_on_in_the_session_it_was_in() -> None:
    """Found by what it resends, for its owner alone."""
    index = SessionIndex()
    remember(index, ANA, "s1", user("hi"), answer("hello"))
    assert (await found(index, BEN, user("hi"), answer("hello"), user("go on"))).session_id != "s1"
    assert (await found(index, ANA, user("hi"), answer("hello"), user("go on"))).session_id == "s1"


async def test_two_conversations_alike_so_far_have_a_session_each() -> None:
    """One is claimed by the first that goes on, the other by the second, and no third is left."""
    index = SessionIndex()
    for name in ("s1", "s2"):
        remember(index, ANA, name, user("hi"), answer("hello"))
    said = (user("hi"), answer("hello"), user("more"))
    assert {(await found(index, ANA, *said)).session_id for _ in range(2)} == {"s1", "s2"}
    assert (await found(index, ANA, *said)).session_id not in ("s1", "s2")


async def test_stored_sessions_are_compared_off_the_event_loop(monkeypatch) -> None:
    """A guard that did not see the talk finds it, and answers others meanwhile."""
    threads = []

    def watched(*given: Any, **options: Any) -> Comparison:
        threads.append(threading.current_thread())
        return compare(*given, **options)

    monkeypatch.setattr("promptguard.service.sessions.compare", watched)
    store, said = MemoryStore(), (user("hi"), answer("hello"), user("more"))
    key = await found(SessionIndex(), ANA, user("hi"))
    entries = tuple(
        make_entry(item.content, position=at, turn=1, role=item.role, content_hash=item.digest)
        for at, item in enumerate(said[:2])
    )
    state = SessionState(session_id=key.session_id, tenant=key.tenant, version=1)
    await store.save(state, expected_version=0, entries=entries)
    finder = SessionFinder(store, SessionIndex())
    async with finder.find(ANA, said, view_of(said), session_id=None) as again:
        assert again == key
    assert threading.main_thread() not in threads
    assert len(threads) == 1


async def test_a_claim_is_given_back_where_judging_fails() -> None:
    """The retry finds the same session."""
    index = SessionIndex()
    remember(index, ANA, "s1", user("hi"), answer("hello"))
    said = (user("hi"), answer("hello"), user("more"))
    finder = SessionFinder(MemoryStore(), index)
    with pytest.raises(KeyError):
        async with finder.find(ANA, said, view_of(said), session_id=None):
            raise KeyError
    assert (await found(index, ANA, *said)).session_id == "s1"


async def test_a_turn_without_an_answer_is_found_when_it_is_sent_again() -> None:
    """Word for word, before any longer beginning is looked at."""
    index = SessionIndex()
    index.mark_unanswered(chain_of(ANA, view_of([user("hi")])), "s1")
    assert (await found(index, ANA, user("hi"))).session_id == "s1"
    assert (await found(index, ANA, user("hi"))).session_id != "s1"


async def test_a_retry_that_is_not_judged_can_be_sent_once_more() -> None:
    """Its session is found again, or the turn would begin one without a past."""
    index = SessionIndex()
    index.mark_unanswered(chain_of(ANA, view_of([user("hi")])), "s1")
    said = (user("hi"),)
    with pytest.raises(KeyError):
        async with SessionFinder(MemoryStore(), index).find(
            ANA, said, view_of(said), session_id=None
        ):
            raise KeyError
    assert (await found(index, ANA, *said)).session_id == "s1"


async def test_a_claim_is_given_back_as_it_was_made() -> None:
    """A longer request that failed leaves the unanswered turn before it to be sent again."""
    index = SessionIndex()
    index.mark_unanswered(chain_of(ANA, view_of([user("hi")])), "s1")
    said = (user("hi"), user("are you there?"))
    with pytest.raises(KeyError):
        async with SessionFinder(MemoryStore(), index).find(
            ANA, said, view_of(said), session_id=None
        ):
            raise KeyError
    assert (await found(index, ANA, user("hi"))).session_id == "s1"


async def test_a_named_or_known_session_is_not_searched_for() -> None:
    """The id is bound to its owner; a known key is taken as it is."""
    finder = SessionFinder(MemoryStore(), SessionIndex())
    async with finder.find(ANA, (), b"", session_id="mine") as key:
        assert key == SessionKey(session_id="ana:mine", tenant="a")
    known = SessionKey(session_id="x", tenant="a")
    async with finder.find(ANA, (), b"", session_id="mine", known=known) as key:
        assert key is known


async def test_requests_without_text_share_no_session() -> None:
    """They are all alike, so nothing tells them apart."""
    index = SessionIndex()
    first, second = await found(index, ANA), await found(index, ANA)
    assert first != second


def test_the_index_is_bounded() -> None:
    """The least recently used is forgotten, many alike are few, and long views are not kept."""
    index = SessionIndex(limit=2)
    for name in ("a", "b", "c"):
        remember(index, ANA, name, user(name))
    assert index.view(SessionKey(session_id="a", tenant="a")) is None
    assert index.claim(chain_of(ANA, view_of([user("a")]))) is None
    assert index.claim(chain_of(ANA, view_of([user("c")]))) == "c"
    for number in range(2 * MAX_ALIKE):
        remember(index, ANA, f"n{number}", user("same"))
    chain = chain_of(ANA, view_of([user("same")]))
    assert sum(index.claim(chain) is not None for _ in range(2 * MAX_ALIKE)) == MAX_ALIKE
    long = [user(f"m{number}") for number in range(MAX_VIEW_BYTES // DIGEST_BYTES + 1)]
    remember(index, ANA, "long", *long)
    assert index.view(SessionKey(session_id="long", tenant="a")) is None


def test_a_forgotten_session_has_no_view() -> None:
    """As after its deletion."""
    index = SessionIndex()
    remember(index, ANA, "s", user("a"))
    key = SessionKey(session_id="s", tenant="a")
    assert index.view(key) is not None
    index.forget(key)
    assert index.view(key) is None
