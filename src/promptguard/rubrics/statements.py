"""How a speaker words what it says of itself: facts, and attributes with one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from promptguard.patterns import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementWording:
    """One entry; its first pattern in a clause counts, unless the clause is excepted."""

    entry: Entry
    patterns: tuple[Any, ...]
    unless: Any

    def found(self, clause: str) -> Any:
        """Return its match in a folded clause, or None."""
        matches = (pattern.search(clause) for pattern in self.patterns)
        found = next((match for match in matches if match), None)
        is_excepted = self.unless is not None and self.unless.search(clause)
        return None if is_excepted else found


@dataclass(frozen=True, slots=True, kw_only=True)
class FactWording(StatementWording):
    """How a speaker affirms or denies a fact of its own.

    A group in a pattern is what it is on; a pattern without one is on what the entry names. In a
    deed the group begins with the verb, and every word of it counts.
    """

    @property
    def is_deed(self) -> bool:
        """Whether it tells what the speaker does or can do."""
        return self.entry.kind == "deed"

    def on(self, clause: str) -> str:
        """Return what a folded clause says it of, or nothing."""
        found = self.found(clause)
        if found is None:
            return ""
        return str(found.group(1)) if found.re.groups else self.entry.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueWording(StatementWording):
    """How a speaker gives an attribute of its own; the group in a pattern is the value.

    A reply gives it only at the beginning of an answer to a question that asks for it.
    """

    @property
    def is_reply(self) -> bool:
        """Whether it needs the question."""
        return self.entry.kind == "reply"

    def value(self, clause: str) -> str:
        """Return the value that a folded clause gives, or nothing."""
        found = self.found(clause)
        return "" if found is None else str(found.group(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A known value of a kind of attribute; `part` is a word for only a part of it, or nothing.

    All words of a `member` entry mean one value. Of a `region` the first means the whole, each
    further one another part of it.
    """

    kind: str
    member: str
    part: str
