"""From a store's URL to the store."""

from __future__ import annotations

from collections.abc import Callable

from promptguard.errors import ConfigError
from promptguard.protocols import SessionStore
from promptguard.registry import Registry

StoreOpener = Callable[[str], SessionStore]
STORES: Registry[StoreOpener] = Registry("store")


def open_store(url: str) -> SessionStore:
    """Return the store that `url` names: `memory:`, `sqlite:PATH` or `postgresql://...`.

    Nothing is read or written before first use. Raises ConfigError where the URL makes no
    sense or an extra is missing.
    """
    scheme, colon, _ = url.partition(":")
    if not colon:
        raise ConfigError(
            "A store is given as memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE; "
            "add the scheme."
        )
    return STORES.get(scheme)(url)


@STORES.register("memory")
def _open_memory(url: str) -> SessionStore:
    from promptguard.stores.memory import MemoryStore

    if url != "memory:":
        raise ConfigError("The memory store takes nothing after the colon; write memory:")
    return MemoryStore()


@STORES.register("sqlite")
def _open_sqlite(url: str) -> SessionStore:
    from promptguard.stores.sqlite import SqliteStore

    return SqliteStore.from_url(url)


@STORES.register("postgresql")
@STORES.register("postgres")
def _open_postgres(url: str) -> SessionStore:
    try:
        from promptguard.stores.postgres import PostgresStore
    except ImportError:
        raise ConfigError(
            "The PostgreSQL store needs the extra `postgres`: pip install 'promptguard[postgres]'."
        ) from None
    return PostgresStore(url)
