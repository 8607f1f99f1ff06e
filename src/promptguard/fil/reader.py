"""The sentences of one text and the rules that match each, asked only where needed."""

from __future__ import annotations

from promptguard.fil.matcher import Matcher
from promptguard.fil.rules import Kind
from promptguard.fil.scan import scripts, sentences
from promptguard.patterns import Entry

_SHORT_SENTENCE = 60
"""Canonical characters up to which a sentence leans on its neighbours ("Tell me how.")."""


class Reader:
    """One canonical text: `whole` are the rules that match anywhere, `parts` the sentences."""

    def __init__(self, matcher: Matcher, scan: str) -> None:
        self._matcher = matcher
        self._scan = scan
        self._scripts = scripts(scan)
        self.whole = matcher.what(scan, self._scripts)
        self.parts = sentences(scan) if self.whole else []
        self._how: dict[int, tuple[Entry, ...]] = {}

    def what(self, index: int) -> tuple[Entry, ...]:
        """Return the rules about what a sentence says, but for those it excepts itself from."""
        sentence = self.parts[index]
        is_whole = len(self.parts) == 1
        found = self.whole if is_whole else self._matcher.what(sentence, self._scripts)
        return self._matcher.meant(found, sentence)

    def across(self) -> tuple[Entry, ...]:
        """Return the temporal rules of the whole text: what they join may span sentences."""
        found = tuple(rule for rule in self.whole if rule.kind == Kind.TEMPORAL)
        return self._matcher.meant(found, self._scan)

    def names(self, index: int, kind: Kind) -> set[str]:
        """Return the names of the intents or contexts of a sentence."""
        return {rule.name for rule in self._how_of(index) if rule.kind == kind}

    def intents_at(self, index: int) -> set[str]:
        """Return the intents of a sentence, and those of short neighbours."""
        found = self.names(index, Kind.INTENT)
        for other in (index - 1, index + 1):
            if 0 <= other < len(self.parts) and len(self.parts[other]) <= _SHORT_SENTENCE:
                found |= self.names(other, Kind.INTENT)
        return found

    def is_defensive(self, index: int) -> bool:
        """Return whether a sentence is about protection from what it names."""
        return "defensive" in self.names(index, Kind.CONTEXT)

    def contexts_at(self, index: int) -> dict[str, float]:
        """Return the frames of a sentence; all but the defensive one may stand just before it."""
        found: dict[str, float] = {}
        for at in (index - 1, index):
            for rule in self._how_of(at) if at >= 0 else ():
                is_near = at == index or rule.name != "defensive"
                if rule.kind == Kind.CONTEXT and is_near:
                    found[rule.name] = min(rule.weight, found.get(rule.name, rule.weight))
        return found

    def _how_of(self, index: int) -> tuple[Entry, ...]:
        if index not in self._how:
            self._how[index] = self._matcher.how(self.parts[index], self._scripts)
        return self._how[index]
