"""Who may look: the signed cookie, and rights that end."""

from __future__ import annotations

import pytest
from dashboard_site import FULL_KEY, KEYS, READ_KEY
from hypothesis import given
from hypothesis import strategies as st

from promptguard.config import KeyConfig
from promptguard.service.auth import Scope, key_hash
from promptguard.service.dashboard.access import VISIT_S, Access, safe_next
from promptguard.testing import ManualClock


def access(secret: bytes | None = None) -> Access:
    return Access(lambda: KEYS, clock=ManualClock(), secret=secret)


def test_another_process_does_not_accept_the_cookie() -> None:
    """The secret lives as long as the process."""
    assert access().visitor(access().sign_in(READ_KEY)) is None


@given(st.text(max_size=200))
def test_rubbish_is_no_cookie(value: str) -> None:
    """Any text may come as a cookie."""
    assert access().visitor(value) is None


@given(st.integers(min_value=0), st.characters())
def test_a_changed_cookie_is_refused(place: int, letter: str) -> None:
    """One changed character breaks the signature."""
    visits = access(b"x" * 32)
    value = visits.sign_in(READ_KEY)
    assert value is not None
    assert visits.visitor(value) is not None
    at = place % len(value)
    changed = value[:at] + letter + value[at + 1 :]
    assert changed == value or visits.visitor(changed) is None


def test_a_key_taken_out_of_the_settings_ends_its_visits() -> None:
    """Rights are looked up at every action."""
    keys = KEYS
    access = Access(lambda: keys, clock=ManualClock())
    visitor = access.visitor(access.sign_in(FULL_KEY))
    assert visitor is not None
    assert visitor.may(Scope.ADMIN)
    keys = KEYS[:1]
    assert not visitor.may(Scope.READ, Scope.GUARD, Scope.ADMIN)
    assert visitor.tenant == ""


def test_a_new_key_of_the_same_name_is_another_key() -> None:
    """A rotated key does not inherit the visits of the old one."""
    keys = KEYS
    access = Access(lambda: keys, clock=ManualClock())
    cookie = access.sign_in(READ_KEY)
    keys = (KeyConfig(name="reader", sha256=key_hash("pg_next"), scopes=("read",)),)
    assert access.visitor(cookie) is None


def test_a_visit_ends_after_half_a_day() -> None:
    """A forgotten browser is not signed in for ever, nor is a page left open in it."""
    clock = ManualClock()
    access = Access(lambda: KEYS, clock=clock)
    cookie = access.sign_in(READ_KEY)
    visitor = access.visitor(cookie)
    assert visitor is not None
    clock.advance(VISIT_S - 1)
    assert visitor.may(Scope.READ)
    clock.advance(1)
    assert access.visitor(cookie) is None
    assert not visitor.may(Scope.READ)
    assert visitor.tenant == ""


def test_signing_out_ends_every_copy_of_the_cookie() -> None:
    """A stolen copy is worth nothing then, nor is a page left open; other visits go on."""
    visits = access()
    cookie, other = visits.sign_in(READ_KEY), visits.sign_in(READ_KEY)
    visitor = visits.visitor(cookie)
    assert visitor is not None
    visits.sign_out(cookie)
    assert visits.visitor(cookie) is None
    assert not visitor.may(Scope.READ)
    assert visits.visitor(other) is not None
    visits.sign_out("rubbish")
    visits.sign_out(None)


def test_keys_added_later_end_the_visits_of_the_local_user() -> None:
    """Who came without a key does not stay without one."""
    keys: tuple[KeyConfig, ...] = ()
    access = Access(lambda: keys, clock=ManualClock())
    visitor = access.visitor(None)
    assert visitor is not None
    assert visitor.may(Scope.ADMIN)
    keys = KEYS
    assert not visitor.may(Scope.READ)


@pytest.mark.parametrize(
    ("wanted", "given_place"),
    [
        ("/quality", "/quality"),
        ("/session?id=a%2Fb", "/session?id=a%2Fb"),
        ("//x", "/"),
        ("x", "/"),
    ],
)
def test_only_our_own_pages_follow_a_sign_in(wanted: str, given_place: str) -> None:
    """Anything that could leave the pages is the first page."""
    assert safe_next(wanted) == given_place
