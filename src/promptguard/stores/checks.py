"""What every store refuses, in the same words."""

from __future__ import annotations

from promptguard.errors import InputError, StoreError, VersionConflict
from promptguard.protocols import SessionKey
from promptguard.state import SessionState

MAX_SESSION_ID = 512
MAX_TENANT = 128


def key_of(state: SessionState) -> SessionKey:
    """Return the name under which a state is stored."""
    return SessionKey(session_id=state.session_id, tenant=state.tenant)


def check_key(key: SessionKey) -> None:
    """Refuse names that a database could not hold or a notification could not carry."""
    _check_name(key.session_id, "session_id", MAX_SESSION_ID)
    _check_name(key.tenant, "tenant", MAX_TENANT)


def check_save(state: SessionState, expected_version: int) -> None:
    """Refuse a state that does not follow the version it claims to replace."""
    check_key(key_of(state))
    if expected_version < 0 or state.version != expected_version + 1:
        raise StoreError(
            f"A save on version {expected_version} must bring version {expected_version + 1}, "
            f"not {state.version}; number the state before saving it."
        )


def conflict(found: int, expected: int) -> VersionConflict:
    """Return the error for a session that stands at another version."""
    return VersionConflict(
        f"The session stands at version {found}, not {expected}: someone else saved it first; "
        "load it again and repeat."
    )


def closed() -> StoreError:
    """Return the error for a store used after `close`."""
    return StoreError("The store is closed; open it again to use it.")


def _check_name(name: str, where: str, limit: int) -> None:
    if not 1 <= len(name) <= limit:
        raise InputError(f"{where} must have between 1 and {limit} characters.")
    if any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in name):
        raise InputError(f"{where} must not contain control characters or broken Unicode.")
