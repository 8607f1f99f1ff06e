"""Errors of an endpoint, with advice and never quoting its answer; and its `Retry-After`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httpx

from promptguard.errors import CircuitOpen, ProviderError, ProviderRejected, ProviderTimeout
from promptguard.providers.registry import ProviderRow

MAX_ERROR_BYTES = 64 * 1024
_ADVICE = {
    402: "add credit to the account",
    413: "the request is too large for it",
    429: "it asks for fewer requests: wait, or lower max_concurrency",
}


def fault_of(error: Exception, provider: ProviderRow, timeout_s: float) -> ProviderError:
    """Return the error for a call that brought no answer, or only part of one."""
    # Told apart from a slow answer: a higher timeout does not help where nobody listens.
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        is_late = isinstance(error, httpx.ConnectTimeout)
        words = f"cannot be reached{' in time' if is_late else ''}; {provider.advice}."
        return _fault(provider, words, ProviderTimeout if is_late else ProviderError)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        words = f"did not answer within {timeout_s:g} s; try again later or raise the timeout."
        return _fault(provider, words, ProviderTimeout)
    return _fault(provider, f"broke off its answer ({type(error).__name__}); try again.")


def odd_encoding(provider: ProviderRow) -> ProviderError:
    """Return the error for an answer in a compression that was not asked for."""
    return _fault(provider, "answered in a compression that is not taken; gzip is asked for.")


def circuit_open(provider: ProviderRow, remaining_s: float) -> ProviderError:
    """Return the error for an endpoint that is being left alone."""
    words = f"failed several times in a row and is left alone for another {remaining_s:.0f} s"
    return _fault(provider, f"{words}; {provider.advice}.", CircuitOpen)


def garbled(provider: ProviderRow) -> ProviderError:
    """Return the error for an answer that is no chat completion."""
    return _fault(
        provider,
        "answered with something that is not a chat completion; check that the base URL ends "
        "where its API begins, usually in /v1.",
    )


def cut_off(provider: ProviderRow) -> ProviderError:
    """Return the error for a stream that ended before the model had finished."""
    return _fault(provider, "ended its answer before it was complete; try again.")


def _fault(
    provider: ProviderRow, words: str, kind: type[ProviderError] = ProviderError
) -> ProviderError:
    return kind(f"{provider.name} {words}", provider=provider.name)


def rejected(
    provider: ProviderRow, status: int, *, body: bytes = b"", headers: httpx.Headers | None = None
) -> ProviderRejected:
    """Return the error for an answer with an error status; the body is kept, not quoted."""
    retry_after_s = None if headers is None else retry_after_of(headers)
    return ProviderRejected(
        f"{provider.name} refused with status {status}; {_advice(provider, status)}.",
        provider=provider.name,
        status=status,
        body=body[:MAX_ERROR_BYTES],
        retry_after_s=retry_after_s,
    )


async def check(response: httpx.Response, provider: ProviderRow) -> None:
    """Raise ProviderRejected unless the response is a success."""
    if response.is_success:
        return
    body = bytearray()
    if response.is_stream_consumed:
        body += response.content
    else:
        async for piece in response.aiter_bytes():
            body += piece
            # An endpoint must not fill the memory of its caller with an error.
            if len(body) > MAX_ERROR_BYTES:
                break
    raise rejected(provider, response.status_code, body=bytes(body), headers=response.headers)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks for, None where it is absent or unreadable.

    A date is read relative to the answer's own `Date`, so our clock does not matter.
    """
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            asked, now = (parsedate_to_datetime(t) for t in (value, headers.get("date", "")))
            # Without a zone they cannot be compared, and a difference of both says little.
            seconds = max(0.0, (asked - now).total_seconds()) if asked.tzinfo else math.nan
        except (ValueError, OverflowError, TypeError):
            return None
    # `float` also reads "nan" and "inf", which no wait can be.
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _advice(provider: ProviderRow, status: int) -> str:
    if status in (401, 403):
        return f"check the key in {provider.key_env}" if provider.key_env else "it wants a key"
    if status == 404:
        # At a local server a missing model is mostly one that was not fetched or started.
        more = f"; {provider.advice}" if provider.is_free else ""
        return f"check the model's name and the base URL{more}"
    if status >= 500:
        return "it has trouble of its own: try again later"
    if 300 <= status < 400:
        return "it redirects, which is not followed: put the final address in base_urls"
    return _ADVICE.get(status, "check the model's name and whether it takes such requests")
