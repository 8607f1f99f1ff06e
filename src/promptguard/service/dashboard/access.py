"""Who looks at the pages: the local user where there are no keys, else whoever signed in with one.

The cookie names the key, never holds it. It is signed with a secret that dies with the process,
and a key that is taken out of the settings ends every visit made with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from promptguard.config import KeyConfig
from promptguard.service.auth import Authenticator, Principal, Scope, local_fault

COOKIE = "promptguard_visit"
VISIT_S = 12 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Signs what a cookie says, and believes only what it signed itself."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def close(self, name: str, mark: str, expires: float) -> str:
        """Return the cookie's value."""
        body = base64.urlsafe_b64encode(json.dumps([name, mark, expires]).encode()).decode()
        return f"{body}.{self._signature(body)}"

    def open(self, value: str, now: float) -> tuple[str, str] | None:
        """Return the key's name and mark; None where it is forged, broken or too old."""
        body, _, signature = value.partition(".")
        if not hmac.compare_digest(_bytes(signature), _bytes(self._signature(body))):
            return None
        try:
            name, mark, expires = json.loads(base64.urlsafe_b64decode(body))
        except (ValueError, binascii.Error):
            return None
        return (str(name), str(mark)) if now < float(expires) else None

    def _signature(self, body: str) -> str:
        return hmac.new(self.secret, _bytes(body), hashlib.sha256).hexdigest()


class Access:
    """Lets visitors in. `keys` are the keys in force, asked anew each time."""

    def __init__(
        self,
        keys: Callable[[], tuple[KeyConfig, ...]],
        *,
        clock: Callable[[], float],
        seal: Seal | None = None,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._seal = seal or Seal()

    @property
    def needs_key(self) -> bool:
        """Whether visitors must sign in."""
        return bool(self._keys())

    def sign_in(self, key: str) -> str | None:
        """Return the cookie for a visitor with this key; None where it may not read."""
        found = Authenticator(self._keys(), clock=self._clock).identify(key)
        if found is None or Scope.READ not in found.scopes:
            return None
        mark = next(_mark(known) for known in self._keys() if known.name == found.name)
        return self._seal.close(found.name, mark, self._clock() + VISIT_S)

    def visitor(self, cookie: str | None) -> Visitor | None:
        """Return whom the cookie stands for; the local user where there are no keys."""
        if not self.needs_key:
            return Visitor(access=self, name="", mark="")
        said = None if cookie is None else self._seal.open(cookie, self._clock())
        if said is None:
            return None
        found = Visitor(access=self, name=said[0], mark=said[1])
        return found if found.may(Scope.READ) else None

    def principal(self, name: str, mark: str) -> Principal | None:
        """Return the holder of a key that is still in force."""
        keys = self._keys()
        if not keys:
            return Principal() if not name else None
        for known in keys:
            if known.name == name and hmac.compare_digest(_mark(known), mark):
                scopes = frozenset(Scope(scope) for scope in known.scopes)
                return Principal(name=known.name, tenant=known.tenant, scopes=scopes)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Someone looking at a page, perhaps for hours: rights are asked for at each action."""

    access: Access
    name: str
    mark: str

    def may(self, *scopes: Scope) -> bool:
        """Say whether the visitor has one of the scopes now."""
        found = self.access.principal(self.name, self.mark)
        return found is not None and bool(found.scopes & set(scopes))

    @property
    def principal(self) -> Principal:
        """The visitor as the rest of the service knows callers; without rights once they ended."""
        found = self.access.principal(self.name, self.mark)
        return found or Principal(name=self.name, tenant="", scopes=frozenset())

    @property
    def tenant(self) -> str:
        """Whose sessions the visitor sees."""
        return self.principal.tenant


def is_local(headers: Mapping[str, str], peer: str | None) -> bool:
    """Say whether a request comes from this machine and from one of its own pages."""
    return local_fault(headers, peer) is None


def _mark(known: KeyConfig) -> str:
    """Return what tells one key from its successor of the same name, without its hash."""
    return hashlib.sha256(f"mark:{known.sha256}".encode()).hexdigest()[:24]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a cookie may hold anything
