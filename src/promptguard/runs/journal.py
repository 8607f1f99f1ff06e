"""The journal of a run: finished lines in one file, and beside it the settings they belong to.

A run that stops anywhere, even in the middle of a line, goes on after the last finished line.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import ConfigError, DataError, InputError


class Journal:
    """Lines in `path`, settings (a JSON object) in `settings_file`, by default `PATH.run`.

    Nothing is read or written before `begin` or `resume`. `is_synced` waits for the disk after
    every line: for lines that are expensive to make again.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, object],
        *,
        settings_file: Path | None = None,
        is_synced: bool = False,
    ) -> None:
        self.path = path
        self.settings_file = settings_file or path.with_name(path.name + ".run")
        # In the form in which they are read back, where tuples are lists, to compare equal.
        self._settings: dict[str, object] = json.loads(json.dumps(settings))
        self._is_synced = is_synced
        self._file: BinaryIO | None = None

    @property
    def holds_anything(self) -> bool:
        """Whether something other than an empty file is at `path`."""
        with self._told("read"):
            return self.path.exists() and (not self.path.is_file() or self.path.stat().st_size > 0)

    def begin(self, *, overwrite: bool = False) -> None:
        """Start an empty journal; what another run left is refused, or replaced if `overwrite`."""
        if not overwrite:
            self.require_new()
        self._open("wb")
        self._write_settings()

    def require_new(self) -> None:
        """Raise InputError where `begin` would replace what another run left."""
        if self.holds_anything:
            raise InputError(
                f"{self.path} exists already: --resume goes on with it, --force replaces it."
            )

    def resume(self, *, may_change: Collection[str] = ()) -> tuple[str, ...]:
        """Return the finished lines and go on after them; without any, the same as `begin`.

        What a stop left of a last line is removed. Raises InputError where the file belongs to
        other settings than `may_change` allows; it is then left as it was.
        """
        lines = self.lines()
        if self.holds_anything:
            self._require_same(may_change)
        self._open("ab")
        # Appending to a line that was cut off would spoil the next.
        self._truncate(lines)
        self._write_settings()
        return lines

    def lines(self) -> tuple[str, ...]:
        """Return the finished lines, without what a stop left of a last one."""
        with self._told("read"):
            text = self.path.read_bytes() if self.path.is_file() else b""
        try:
            return tuple(line.decode("utf-8") for line in text.split(b"\n")[:-1])
        except UnicodeDecodeError:
            raise DataError(f"{self.path} is not UTF-8 text.") from None

    def stored_settings(self) -> Mapping[str, object] | None:
        """Return the settings of the run whose lines are there; None where no run began."""
        try:
            body = json.loads(self.settings_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise DataError(f"{self.settings_file} is broken; begin a new run.")
        return body

    def add(self, line: str) -> None:
        """Write one line through to the file."""
        if self._file is None:
            raise RuntimeError("The journal is not open.")
        with self._told("write"):
            # A lone surrogate becomes its JSON escape instead of an error.
            self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
            self._file.flush()
            if self._is_synced:
                os.fsync(self._file.fileno())

    def drop_last(self, count: int) -> None:
        """Remove the last `count` lines, to be written again."""
        if count:
            self._truncate(self.lines()[:-count])

    def close(self) -> None:
        """Close the file; lines and settings stay, so that the run can be resumed."""
        file, self._file = self._file, None
        if file is not None:
            # What could not be written before is tried once more here.
            with self._told("write"):
                file.close()

    def _truncate(self, kept: Sequence[str]) -> None:
        with self._told("write"):
            os.truncate(self.path, sum(len(line.encode("utf-8")) + 1 for line in kept))

    def _open(self, how: str) -> None:
        self.close()
        with self._told("write"):
            self._file = self.path.open(how)  # type: ignore[assignment]

    def _write_settings(self) -> None:
        with self._told("write"):
            replace_text(self.settings_file, json.dumps(self._settings, indent=1) + "\n")

    def _require_same(self, may_change: Collection[str]) -> None:
        stored = self.stored_settings()
        if stored is None:
            raise InputError(
                f"{self.settings_file} is missing, so it is unknown how {self.path} was made; "
                "begin a new run."
            )
        changed = sorted(
            name
            for name in stored.keys() | self._settings.keys()
            if name not in may_change and stored.get(name) != self._settings.get(name)
        )
        if changed:
            raise InputError(
                f"{self.path} belongs to a run with other settings ({', '.join(changed)}); "
                "run without --resume."
            )

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(f"Cannot {what} {self.path}: {error.strerror}.") from None


def judging_hash(config: ControllerConfig) -> str:
    """Return a hash of all that judges by a configuration: it, and the files that it names.

    Where it names neither weights nor rules, it is the configuration's own.
    """
    named = [Path(name) for name in (config.weights, *config.rules) if name]
    if not named:
        return config_hash(config)
    digest = hashlib.sha256(config_hash(config).encode())
    for path in named:
        # A folder of rules is a language, with a file for each section.
        for file in sorted(path.glob("*.toml")) if path.is_dir() else [path]:
            # One that cannot be read fails where it is used, which says why.
            with suppress(OSError):
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def replace_text(path: Path, text: str) -> None:
    """Write a whole file at once: a reader sees the old text or the new, never a part."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
