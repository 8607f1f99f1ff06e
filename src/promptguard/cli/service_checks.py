"""Whether the store, the model's files, keys, audit file, webhooks and extra are in order.

For `promptguard doctor`, and for `promptguard serve` before it starts.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from promptguard.config import KeyConfig, ServiceConfig
from promptguard.errors import ConfigError, ModelError, StoreError

# What people type as a key to try things out, and then forget.
_GUESSED = (
    *("", "a", "abc", "admin", "api", "apikey", "app", "changeme", "default", "dev", "dummy"),
    *("example", "foo", "guard", "hello", "key", "letmein", "local", "master", "mykey", "none"),
    *("password", "promptguard", "qwerty", "root", "secret", "sk-1234", "sk-test", "test"),
    *("test123", "testkey", "token", "user", "xxx", "your-api-key", "YOUR_KEY", "1", "12", "123"),
    *("1234", "12345", "123456", "12345678", "123456789", "1234567890", "pg_", "pg_test", "pg_key"),
)

_SERVICE = {"fastapi", "starlette", "uvicorn", "prometheus_client", "nicegui"}


@contextmanager
def service_extra() -> Iterator[None]:
    """Turn a missing package of the service into an error that names the extra."""
    try:
        yield
    except ImportError as error:
        # Another missing module is a fault of ours, and an advice to install would hide it.
        if (error.name or "").partition(".")[0] not in _SERVICE:
            raise
        raise ConfigError(
            "The service needs the extra `service`: pip install 'ayniguard[service]'."
        ) from None


def examine_store(url: str) -> str:
    """Return what is well with the store; raises what is not.

    A file that does not exist is not made, and a database server is not called.
    """
    from promptguard.stores import open_store

    # Touches nothing, and finds a URL without sense or an extra that is missing.
    open_store(url)
    scheme = url.partition(":")[0]
    if scheme != "sqlite":
        return f"{scheme}, kept in this process" if scheme == "memory" else f"{scheme}, not called"
    # As the store reads it, which leaves `~nobody` as it is.
    path = Path(os.path.expanduser(unquote(urlsplit(url).path)))
    require_writable(path)
    if path.exists():
        _check_pages(path)
        check_store(url)
    return f"{path} can be written"


def check_store(url: str) -> None:
    """Write to the store, which is made if need be; raises StoreError that names it."""
    from promptguard.stores import open_store

    async def write() -> None:
        store = open_store(url)
        try:
            await store.check_writable()
        finally:
            await store.close()

    asyncio.run(write())


def examine_model_files() -> str:
    """Return which model is installed; raises ModelError where a file is not the published one."""
    from promptguard.model.artifact import bundled

    artifact = bundled()
    if damaged := artifact.damaged():
        raise ModelError(
            f"{', '.join(damaged)} in {artifact.folder} differ from what was published; "
            "reinstall the package."
        )
    return f"{artifact.manifest.name} {artifact.manifest.version}, files as published"


def examine_audit(path: str) -> str:
    """Return that the audit file can be appended to; raises ConfigError where it cannot."""
    require_writable(Path(path))
    return f"{path} can be written"


def examine_keys(keys: tuple[KeyConfig, ...]) -> str:
    """Return how many keys there are; raises ConfigError where one can be guessed."""
    # Only hashes are configured, so the guesses are hashed.
    guessed = {hashlib.sha256(word.encode()).hexdigest() for word in _GUESSED}
    weak = [key.name for key in keys if key.sha256 in guessed]
    if weak:
        raise ConfigError(
            f"Anybody can guess the key of {', '.join(weak)}; make another with "
            "`promptguard keys new`."
        )
    return f"{len(keys)} configured, none easily guessed"


def examine_webhooks(config: ServiceConfig) -> str:
    """Return how many webhooks there are; raises ConfigError where one lacks its secret."""
    with service_extra():
        from promptguard.service.webhooks import check_webhook
    for hook in config.webhooks:
        check_webhook(hook, os.environ)
    return f"{len(config.webhooks)} configured, not called"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; raises ConfigError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    # A restart would else fail for a minute after the last connections.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or "no such address"
        advice = "give --host an address of this machine, such as 127.0.0.1"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            advice = "stop what listens there, or choose another with --port"
        elif isinstance(error, PermissionError):
            advice = "choose a port from 1024 on with --port"
        raise ConfigError(f"Cannot listen on {host}:{port} ({reason}); {advice}.") from None
    bound.set_inheritable(True)
    return bound


def require_writable(path: Path, *, makes_folder: bool = False) -> None:
    """Raise ConfigError where the file cannot be written, or not be made.

    `makes_folder`: whoever writes it makes the folders that are missing.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name the file in it: {path}/NAME.")
    if path.exists():
        if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
            raise ConfigError(f"{path} cannot be written; change its rights or the setting.")
        return
    folder = path.absolute().parent
    if makes_folder:
        folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.exists():
        raise ConfigError(f"{folder} does not exist; make it, or choose another for {path.name}.")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} cannot be written; choose another place for {path.name}.")


def _check_pages(path: Path) -> None:
    """Read every page of an SQLite file; raises StoreError where one is damaged."""
    try:
        # Read-only, so that looking makes no file and changes none.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            # Finds damaged pages without comparing every index, which takes long on a large file.
            found = file.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        raise StoreError(
            f"{path} is damaged ({found}); restore it from a backup, or move it away together "
            "with its -wal and -shm files and start again."
        )
