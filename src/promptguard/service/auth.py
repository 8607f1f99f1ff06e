"""Callers: API keys stored as hashes, scopes, limits per key, the local caller."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import HTTPConnection

from promptguard.config import KeyConfig
from promptguard.counts import counted
from promptguard.errors import ConfigError
from promptguard.service.errors import ApiError

KEY_PREFIX = "pg_"
PRINCIPAL = "promptguard.principal"
# Matched as a whole: what only begins like an address of this machine is another host.
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_HOST.pattern}")


class Scope(StrEnum):
    """What a key may do: judge and use the gateway, look at sessions, change them."""

    GUARD = "guard"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller. `name` is empty, and nothing limited, without configured keys."""

    name: str = ""
    tenant: str = "default"
    requests_at_once: int | None = None
    scopes: frozenset[Scope] = frozenset(Scope)

    def require(self, scope: Scope) -> None:
        """Raise a 403 ApiError unless the caller has the scope."""
        if scope not in self.scopes:
            message = f"This key lacks the scope {scope.value}."
            raise ApiError(403, message, code="insufficient_scope")


@dataclass(slots=True, kw_only=True)
class TokenBucket:
    """Allows `per_minute` requests a minute, at most a minute's worth at once."""

    per_minute: int
    tokens: float = math.inf
    updated_s: float = -math.inf

    def take(self, now_s: float) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        # A clock that was set back must neither add to a bucket nor block it.
        passed_s, self.updated_s = max(0.0, now_s - self.updated_s), now_s
        rate = self.per_minute / 60.0
        self.tokens = min(float(self.per_minute), self.tokens + passed_s * rate)
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / rate


class Authenticator:
    """Checks API keys. Without any configured, every caller is the local user (`check_host`)."""

    def __init__(self, keys: tuple[KeyConfig, ...], *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._keys: tuple[KeyConfig, ...] = ()
        self._buckets: dict[str, TokenBucket] = {}
        self.replace_keys(keys)

    @property
    def has_keys(self) -> bool:
        """Whether callers must show a key."""
        return bool(self._keys)

    def replace_keys(self, keys: tuple[KeyConfig, ...]) -> None:
        """Accept only these keys from now on; an unchanged key keeps its rate-limit bucket."""
        # A reload must not hand a full minute to every key; a changed one begins anew.
        old = {key.name: key for key in self._keys}
        self._buckets = {
            key.name: self._buckets[key.name]
            if old.get(key.name) == key
            else TokenBucket(per_minute=key.requests_per_minute)
            for key in keys
        }
        self._keys = keys

    def admit(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller; raises an ApiError without a known key or above its rate."""
        if not self._keys:
            return Principal()
        principal = self.identify(key_in(headers))
        # A reload, in another thread, may take the key back meanwhile, and its bucket with it.
        bucket = None if principal is None else self._buckets.get(principal.name)
        if principal is None or bucket is None:
            raise ApiError(
                401,
                "This needs a valid API key: send it as `Authorization: Bearer KEY`.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        # Only known keys have a bucket, so that guessing fills no memory.
        wait_s = bucket.take(self._clock())
        if wait_s > 0:
            raise ApiError(
                429,
                "This key's rate limit is reached; try again later.",
                code="rate_limit_exceeded",
                headers={"retry-after": str(int(wait_s) + 1)},
            )
        return principal

    def identify(self, key: str) -> Principal | None:
        """Return whose key this is; every stored hash is compared, in constant time."""
        digest = key_hash(key)
        owner = None
        # No early exit: the time taken must not tell which key came close.
        for known in self._keys:
            if hmac.compare_digest(digest, known.sha256):
                owner = known
        if owner is None:
            return None
        return Principal(
            name=owner.name,
            tenant=owner.tenant,
            requests_at_once=owner.requests_at_once,
            scopes=frozenset(map(Scope, owner.scopes)),
        )


class CallerSlots:
    """Counts the requests under way: of each caller, and of all together."""

    def __init__(self) -> None:
        self._all = 0
        self._used: Counter[str] = Counter()

    @contextmanager
    def slot(self, caller: str, limit: int, limit_of_all: int) -> Iterator[None]:
        """Hold one of the caller's slots for a block; raises an ApiError where none is free.

        It is a 503 where the service is full and a 429 where the caller is.
        """
        for status, who, used, most in (
            (503, "The service", self._all, limit_of_all),
            (429, "This key", self._used[caller], limit),
        ):
            if used >= most:
                raise ApiError(
                    status,
                    f"{who} has {counted(most, 'request')} under way, which is its limit; "
                    "wait until one is answered.",
                    code="too_many_at_once",
                    headers={"retry-after": "1"},
                )
        self._all += 1
        self._used[caller] += 1
        try:
            yield
        finally:
            self._all -= 1
            self._used[caller] -= 1
            if not self._used[caller]:
                # Removed at zero: without keys every connection is a caller of its own.
                del self._used[caller]


def principal_of(request: HTTPConnection) -> Principal:
    """Return the caller that the middleware authenticated."""
    principal = request.scope.get(PRINCIPAL)
    assert isinstance(principal, Principal), "the middleware runs before every route"
    return principal


def permitted(request: HTTPConnection, scope: Scope) -> Principal:
    """Return the caller if they have the scope, else raise a 403 ApiError."""
    principal = principal_of(request)
    principal.require(scope)
    return principal


def key_in(headers: Mapping[str, str]) -> str:
    """Return the key a request carries, empty where there is none."""
    kind, _, credentials = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return credentials.strip()
    # The first is Anthropic's header, the second Azure's; unchanged clients send them.
    return headers.get("x-api-key", "") or headers.get("api-key", "")


def key_hash(key: str) -> str:
    """Return the hash under which a key is stored.

    Keys are 256 random bits, so they need no salt and no slow hash.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def new_key() -> str:
    """Return a fresh key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def check_host(host: str, keys: tuple[KeyConfig, ...]) -> None:
    """Raise ConfigError where the service would be reachable from elsewhere without keys."""
    if not keys and not is_loopback(host):
        raise ConfigError(
            f"Listening on {host} needs API keys: make one with `promptguard keys new` and put "
            "its hash under service.keys, or listen on 127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Say whether an address reaches only this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    # A socket for both protocols shows an IPv4 peer as ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def local_only_error(headers: Mapping[str, str], peer: str | None) -> ApiError | None:
    """Return why a caller without a key is not the local user, None where it may be.

    A web page in the user's browser can reach loopback too, under another host name (DNS
    rebinding) or from another origin; neither is the local user.
    """
    # Browsers send both where it matters; a program may send neither.
    origin, host = headers.get("origin"), headers.get("host")
    is_own_page = origin is None or _is_local_address(_ORIGIN, origin)
    is_own_name = host is None or _is_local_address(_HOST, host)
    if (peer is None or is_loopback(peer)) and is_own_page and is_own_name:
        return None
    return ApiError(
        403,
        "Without API keys only programs on this machine are answered, under localhost or "
        "127.0.0.1; configure service.keys to serve others.",
        code="local_only",
    )


def _is_local_address(pattern: re.Pattern[str], value: str) -> bool:
    """Say whether a Host or Origin header names this machine; anything odd does not."""
    match = pattern.fullmatch(value)
    return match is not None and is_loopback(match["host"])
