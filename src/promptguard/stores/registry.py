"""Stores by the scheme of their URL."""

from __future__ import annotations

from typing import Protocol

from promptguard.errors import ConfigError, StoreError
from promptguard.protocols import SessionStore
from promptguard.registry import Registry


class StoreOpener(Protocol):
    """Makes the store for a URL; with `must_exist`, using one that is not there is an error."""

    def __call__(self, url: str, *, must_exist: bool = False) -> SessionStore:
        """Return the store."""


STORES: Registry[StoreOpener] = Registry("store")


def open_store(url: str, *, must_exist: bool = False) -> SessionStore:
    """Return the store that `url` names: `memory:`, `sqlite:PATH` or `postgresql://...`.

    Nothing is read or written before first use. With `must_exist` no store is created: using one
    that is not there raises StoreError. Raises ConfigError where the URL makes no sense or an
    extra is missing.
    """
    # Only the scheme is ever named in an error: the rest may hold a password.
    scheme, colon, _ = url.partition(":")
    if not colon:
        raise ConfigError(
            "A store is given as memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE; "
            "add the scheme."
        )
    return STORES.get(scheme)(url, must_exist=must_exist)


@STORES.register("memory")
def _open_memory(url: str, *, must_exist: bool = False) -> SessionStore:
    # Imported on use, as each store is, so that no store costs what another needs.
    from promptguard.stores.memory import MemoryStore

    # Reading commands would else answer with an empty list, as if nothing were stored.
    if must_exist:
        raise StoreError("The store is memory:, which keeps nothing between commands.")
    if url != "memory:":
        raise ConfigError("The memory store takes nothing after the colon; write memory:")
    return MemoryStore()


@STORES.register("sqlite")
def _open_sqlite(url: str, *, must_exist: bool = False) -> SessionStore:
    from promptguard.stores.sqlite import SqliteStore

    return SqliteStore.from_url(url, must_exist=must_exist)


@STORES.register("postgresql")
@STORES.register("postgres")
def _open_postgres(url: str, *, must_exist: bool = False) -> SessionStore:
    try:
        from promptguard.stores.postgres import PostgresStore
    except ImportError:
        raise ConfigError(
            "The PostgreSQL store needs the extra `postgres`: pip install 'ayniguard[postgres]'."
        ) from None
    return PostgresStore(url, must_exist=must_exist)
