"""Which rules match a text, asked per script so that a text meets only what can match it."""

from __future__ import annotations

from collections.abc import Iterable

from promptguard.fil.rules import Kind
from promptguard.patterns import Entry, Pack, PatternSet, any_of, compiled
from promptguard.patterns.pack import joined

_LIGHT = frozenset({Kind.INTENT, Kind.CONTEXT})


class Matcher:
    """The rules of all packs.

    `what` finds content, features, concepts and temporal patterns, which most texts lack;
    `how` finds intents and contexts, which matter only next to those.
    """

    def __init__(self, packs: Iterable[Pack]) -> None:
        by_scripts: dict[frozenset[str], list[Entry]] = {}
        for pack in packs:
            by_scripts.setdefault(pack.scripts, []).extend(pack.entries)
        self._what = _sets(by_scripts, is_light=False)
        self._how = _sets(by_scripts, is_light=True)
        self._exceptions = {
            rule.id: compiled(joined(rule.unless), rule)
            for rules in by_scripts.values()
            for rule in rules
            if rule.unless
        }
        going_on = [
            rule
            for rules in by_scripts.values()
            for rule in rules
            if (rule.kind, rule.name) == (Kind.TEMPORAL, "follow_up")
        ]
        self._follow_up = any_of(going_on) if going_on else None

    def meant(self, rules: Iterable[Entry], sentence: str) -> tuple[Entry, ...]:
        """Return those of the rules matched in `sentence` that it does not except."""
        return tuple(
            rule
            for rule in rules
            if not rule.unless or not self._exceptions[rule.id].search(sentence)
        )

    def without_follow_up(self, scan: str) -> str:
        """Return the canonical text without the words that only ask to go on."""
        left: str = self._follow_up.sub(" ", scan) if self._follow_up else scan
        return left

    def what(self, scan: str, scripts: frozenset[str]) -> tuple[Entry, ...]:
        """Return the rules about what is said."""
        return _matched(self._what, scan, scripts)

    def how(self, scan: str, scripts: frozenset[str]) -> tuple[Entry, ...]:
        """Return the rules about how it is said."""
        return _matched(self._how, scan, scripts)


_Sets = tuple[tuple[frozenset[str], PatternSet], ...]


def _sets(by_scripts: dict[frozenset[str], list[Entry]], *, is_light: bool) -> _Sets:
    return tuple(
        (scripts, PatternSet([rule for rule in rules if (rule.kind in _LIGHT) is is_light]))
        for scripts, rules in by_scripts.items()
    )


def _matched(sets: _Sets, scan: str, scripts: frozenset[str]) -> tuple[Entry, ...]:
    found: tuple[Entry, ...] = ()
    for needed, rules in sets:
        if needed & scripts:
            found += rules.match(scan)
    return found
