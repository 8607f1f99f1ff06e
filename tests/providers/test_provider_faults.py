"""Faults of providers in words that say what to do, and never quote what was sent."""

import httpx
import pytest

from promptguard.errors import ProviderError, ProviderRejected, ProviderTimeout
from promptguard.providers.faults import (
    MAX_ERROR_BYTES,
    check,
    circuit_open,
    cut_off,
    fault_of,
    garbled,
    odd_encoding,
    rejected,
    retry_after_of,
)
from promptguard.providers.registry import provider_of

PAID, FREE = provider_of("openai", {}), provider_of("ollama", {})
MONDAY = "Mon, 02 Jan 2023 10:00:00 GMT"
LATER = "Mon, 02 Jan 2023 10:00:30 GMT"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (httpx.ConnectTimeout("x"), ProviderTimeout, "in time"),
        (httpx.ReadTimeout("x"), ProviderTimeout, "within 5 s"),
        (TimeoutError(), ProviderTimeout, "within 5 s"),
        (httpx.ConnectError("x"), ProviderError, "cannot be reached"),
        (httpx.RemoteProtocolError("secret words"), ProviderError, "broke off"),
    ],
)
def test_a_call_without_an_answer_says_why(error: Exception, kind: type, words: str) -> None:
    """By name of the provider, without the words of the library."""
    fault = fault_of(error, PAID, 5.0)
    assert type(fault) is kind
    assert words in str(fault)
    assert PAID.name in str(fault)
    assert "secret" not in str(fault)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "check the key in OPENAI_API_KEY"),
        (403, "check the key in OPENAI_API_KEY"),
        (402, "credit"),
        (404, "model's name"),
        (413, "too large"),
        (429, "fewer requests"),
        (302, "redirects"),
        (503, "trouble of its own"),
        (418, "whether it takes such requests"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, advice: str) -> None:
    """Each status has its own advice; the body is kept and not quoted."""
    fault = rejected(PAID, status, body=b"secret words")
    assert (fault.status, fault.body) == (status, b"secret words")
    assert advice in str(fault)
    assert "secret" not in str(fault)


def test_a_server_of_ones_own_wants_no_key() -> None:
    """It has no variable to name, and its advice says how to start it."""
    assert "it wants a key" in str(rejected(FREE, 401))
    assert FREE.advice in str(rejected(FREE, 404))


def test_a_long_error_body_is_cut_and_a_wait_is_kept() -> None:
    """An endpoint cannot fill the memory of its caller."""
    headers = httpx.Headers({"retry-after": "7"})
    fault = rejected(PAID, 429, body=b"x" * (2 * MAX_ERROR_BYTES), headers=headers)
    assert len(fault.body) == MAX_ERROR_BYTES
    assert fault.retry_after_s == 7.0


def test_other_faults_name_the_provider() -> None:
    """Left alone, garbled, broken off, or packed as nobody asked."""
    for fault in (circuit_open(PAID, 12.3), garbled(PAID), cut_off(PAID), odd_encoding(PAID)):
        assert PAID.name in str(fault)
        assert fault.provider == PAID.name
    assert "12 s" in str(circuit_open(PAID, 12.3))


async def test_a_success_is_let_through() -> None:
    """Nothing is read of it."""
    await check(httpx.Response(200, content=b"ok"), PAID)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_error_is_raised_with_its_body(is_streamed: bool) -> None:
    """Whether it was read already or still comes in pieces."""

    async def pieces():
        for _ in range(100):
            yield b"x" * 1024

    content = pieces() if is_streamed else b"why"
    with pytest.raises(ProviderRejected) as raised:
        await check(httpx.Response(500, content=content), PAID)
    expected = MAX_ERROR_BYTES if is_streamed else 3
    assert len(raised.value.body) == expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": LATER, "date": MONDAY}, 30.0),
        ({"retry-after": MONDAY, "date": LATER}, 0.0),
        ({"retry-after": LATER}, None),
        ({"retry-after": LATER, "date": MONDAY.replace("GMT", "-0000")}, None),
        ({"retry-after": LATER.replace("GMT", "-0000"), "date": MONDAY}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon", "date": MONDAY}, None),
        ({"retry-after": LATER.replace("GMT", "+" + "9" * 20), "date": MONDAY}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds or a date; nonsense is ignored."""
    assert retry_after_of(headers) == seconds
