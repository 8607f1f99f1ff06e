"""Which session a request belongs to: what it says itself, bound to the key it came with.

Without an id in the request the conversation is its own name: a hash chain over the messages.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from promptguard.conversation import Role
from promptguard.service.auth import Principal
from promptguard.service.chat_request import Said

DIGEST_BYTES = 8
_PLAIN = re.compile(r"[A-Za-z0-9._:@=+-]{1,128}\Z")
_INITIAL = {Role.USER: "u", Role.TOOL: "t", Role.ASSISTANT: "a", Role.SYSTEM: "s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who speaks: the tenant and key of the caller, and the end user where the caller says so."""

    principal: Principal
    end_user: str = ""

    @property
    def tenant(self) -> str:
        """Whose sessions these are."""
        return self.principal.tenant

    def bound(self, session_id: str) -> str:
        """Return the name under which the caller's session is stored; no other key reaches it."""
        return f"{self.principal.name}:{session_id}" if self.principal.name else session_id


def given_session_id(
    places: Sequence[str], headers: Mapping[str, str], body: Mapping[str, object]
) -> str | None:
    """Return the first id found in the configured headers and body fields, in a plain form."""
    for place in places:
        kind, _, name = place.partition(":")
        found = headers.get(name.lower()) if kind == "header" else _field(body, name)
        if isinstance(found, int) and not isinstance(found, bool):
            found = str(found)
        if isinstance(found, str) and found.strip():
            return plain_id(found.strip())
    return None


def plain_id(session_id: str) -> str:
    """Return an id that is safe in headers, paths and logs: itself, or a hash of it."""
    if _PLAIN.match(session_id):
        return session_id
    return "x-" + hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:40]


def new_chain_id(owner: Owner, said: Sequence[Said]) -> str:
    """Return a new session's id that other guards find again by how the conversation begins."""
    return owner.bound(f"{chain_prefix(owner, said)}{secrets.token_hex(6)}")


def chain_prefix(owner: Owner, said: Sequence[Said]) -> str:
    """Return what the ids of all conversations with this beginning have in common."""
    opening = []
    for item in said:
        if item.role is Role.ASSISTANT:
            break
        opening.append(item)
    return f"c-{chain_of(owner, view_of(opening)).hex()[:24]}-"


def view_of(said: Sequence[Said]) -> bytes:
    """Return a conversation as one short digest per message, comparable by its bytes."""
    return b"".join(
        hashlib.blake2b(
            (_INITIAL[item.role] + item.digest).encode(), digest_size=DIGEST_BYTES
        ).digest()
        for item in said
    )


def chain_of(owner: Owner, view: bytes) -> bytes:
    """Return the name of a conversation up to here, different for every owner."""
    who = "\0".join((owner.tenant, owner.principal.name, owner.end_user))
    return hashlib.blake2b(view, key=hashlib.sha256(who.encode()).digest(), digest_size=16).digest()


def _field(body: Mapping[str, object], path: str) -> object:
    value: object = body
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
