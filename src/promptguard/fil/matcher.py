"""Which rules match a text, found in linear time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import re2

from promptguard.errors import DataError
from promptguard.fil.rules import Kind, Rule, RulePack

_MAX_MEMORY = 16 * 1024 * 1024
_LIGHT = frozenset({Kind.INTENT, Kind.CONTEXT})


class RuleSet:
    """Many patterns behind one automaton of the words they need; safe to share between threads.

    Only patterns whose words occur are run at all, so that a text costs little however many
    rules there are.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._filter = re2.Filter()
        for rule in self.rules:
            try:
                self._filter.Add(rule.pattern, _options())
            except re2.error:
                raise _bad_pattern(rule) from None
        if self.rules:
            self._filter.Compile()

    def match(self, scan: str) -> tuple[Rule, ...]:
        """Return the rules that match the canonical text `scan`."""
        if not self.rules:
            return ()
        return tuple(self.rules[index] for index in sorted(self._filter.Match(scan) or ()))


class Matcher:
    """The rules of all packs, asked per script so that a text meets only what can match it.

    `what` finds content, features, concepts and temporal patterns, which most texts lack;
    `how` finds intents and contexts, which matter only next to those.
    """

    def __init__(self, packs: Iterable[RulePack]) -> None:
        by_scripts: dict[frozenset[str], list[Rule]] = {}
        for pack in packs:
            by_scripts.setdefault(pack.scripts, []).extend(pack.rules)
        self._what = _sets(by_scripts, is_light=False)
        self._how = _sets(by_scripts, is_light=True)
        self._exceptions = {
            rule.id: _compiled(rule, rule.unless)
            for rules in by_scripts.values()
            for rule in rules
            if rule.unless
        }

    def meant(self, rules: Iterable[Rule], sentence: str) -> tuple[Rule, ...]:
        """Return those of the rules matched in `sentence` that it does not except."""
        return tuple(
            rule
            for rule in rules
            if not rule.unless or not self._exceptions[rule.id].search(sentence)
        )

    def what(self, scan: str, scripts: frozenset[str]) -> tuple[Rule, ...]:
        """Return the rules about what is said."""
        return _matched(self._what, scan, scripts)

    def how(self, scan: str, scripts: frozenset[str]) -> tuple[Rule, ...]:
        """Return the rules about how it is said."""
        return _matched(self._how, scan, scripts)


_Sets = tuple[tuple[frozenset[str], RuleSet], ...]


def _sets(by_scripts: dict[frozenset[str], list[Rule]], *, is_light: bool) -> _Sets:
    return tuple(
        (scripts, RuleSet([rule for rule in rules if (rule.kind in _LIGHT) is is_light]))
        for scripts, rules in by_scripts.items()
    )


def _matched(sets: _Sets, scan: str, scripts: frozenset[str]) -> tuple[Rule, ...]:
    found: tuple[Rule, ...] = ()
    for needed, rules in sets:
        if needed & scripts:
            found += rules.match(scan)
    return found


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    return options


def _compiled(rule: Rule, pattern: str) -> re2._Regexp:
    try:
        return re2.compile(pattern, _options())
    except re2.error:
        raise _bad_pattern(rule) from None


def _bad_pattern(rule: Rule) -> DataError:
    return DataError(f"Rule {rule.id} has no valid pattern; the notation is in the documentation.")
