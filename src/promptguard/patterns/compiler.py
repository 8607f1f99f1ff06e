"""Patterns compiled with RE2: every match takes time linear in the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import re2

from promptguard.errors import DataError
from promptguard.patterns.pack import Entry, joined

_MAX_MEMORY = 64 * 1024 * 1024


class PatternSet:
    """Many patterns behind one automaton of the words they need; safe to share between threads.

    Only patterns whose words occur are run at all, so that a text costs little however many
    entries there are.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self._filter = re2.Filter()
        for entry in self.entries:
            try:
                self._filter.Add(entry.pattern, _options())
            except re2.error:
                raise _bad_pattern(entry) from None
        if self.entries:
            self._filter.Compile()

    def match(self, text: str) -> tuple[Entry, ...]:
        """Return the entries that match the prepared `text`, in order."""
        if not self.entries:
            return ()
        return tuple(self.entries[index] for index in sorted(self._filter.Match(text) or ()))


def any_of(entries: Iterable[Entry]) -> Any:
    """Return one compiled pattern that matches where any of the entries does."""
    chosen = tuple(entries)
    try:
        return re2.compile(joined(tuple(entry.pattern for entry in chosen)), _options())
    except re2.error:
        for entry in chosen:
            compiled(entry.pattern, entry)
        raise


def compiled(pattern: str, entry: Entry) -> Any:
    """Compile a pattern of `entry`; raises DataError naming it."""
    try:
        return re2.compile(pattern, _options())
    except re2.error:
        raise _bad_pattern(entry) from None


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    return options


def _bad_pattern(entry: Entry) -> DataError:
    return DataError(f"{entry.id} has no valid pattern; the notation is in the documentation.")
