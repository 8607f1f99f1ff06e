"""Which rules match a text, found in one linear pass per script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import re2

from promptguard.errors import DataError
from promptguard.fil.rules import Kind, Rule, RulePack

_MAX_MEMORY = 64 * 1024 * 1024
_LIGHT = frozenset({Kind.INTENT, Kind.CONTEXT})


class RuleSet:
    """Many patterns compiled into one automaton; safe to share between threads."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        options = re2.Options()
        options.max_mem = _MAX_MEMORY
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        for rule in self.rules:
            try:
                self._set.Add(rule.pattern)
            except re2.error as error:
                raise DataError(f"Rule {rule.id} has no valid pattern: {error}.") from None
        self._set.Compile()

    def match(self, scan: str) -> tuple[Rule, ...]:
        """Return the rules that match the canonical text `scan`."""
        if not self.rules:
            return ()
        return tuple(self.rules[index] for index in sorted(self._set.Match(scan) or ()))


class Matcher:
    """The rules of all packs, asked per script so that a text meets only what can match it.

    `what` finds content, features, concepts and temporal patterns, which most texts lack;
    `how` finds intents and contexts, which matter only next to those.
    """

    def __init__(self, packs: Iterable[RulePack]) -> None:
        by_scripts: dict[frozenset[str], list[Rule]] = {}
        self._exceptions = {}
        for pack in packs:
            self._exceptions |= {r.id: re2.compile(r.unless) for r in pack.rules if r.unless}
            by_scripts.setdefault(pack.scripts, []).extend(pack.rules)
        self._groups = tuple(
            (
                scripts,
                RuleSet([rule for rule in rules if rule.kind not in _LIGHT]),
                RuleSet([rule for rule in rules if rule.kind in _LIGHT]),
            )
            for scripts, rules in by_scripts.items()
        )

    def meant(self, rules: Iterable[Rule], sentence: str) -> tuple[Rule, ...]:
        """Return those of the rules matched in `sentence` that it does not except."""
        return tuple(
            rule
            for rule in rules
            if not rule.unless or not self._exceptions[rule.id].search(sentence)
        )

    def what(self, scan: str, scripts: frozenset[str]) -> tuple[Rule, ...]:
        """Return the rules about what is said."""
        return self._match(scan, scripts, 1)

    def how(self, scan: str, scripts: frozenset[str]) -> tuple[Rule, ...]:
        """Return the rules about how it is said."""
        return self._match(scan, scripts, 2)

    def _match(self, scan: str, scripts: frozenset[str], part: int) -> tuple[Rule, ...]:
        found: tuple[Rule, ...] = ()
        for group in self._groups:
            if group[0] & scripts:
                found += (group[1] if part == 1 else group[2]).match(scan)
        return found
