"""Rules of the Frozen Instinct Layer: the section `rules` of a language, checked."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from promptguard.errors import DataError
from promptguard.fil.directives import Attack, Directive
from promptguard.patterns import Entry, Pack, add_language, on_new, packs, read_pack

SECTION = "rules"


class Kind(StrEnum):
    """What a match of a rule means."""

    CONTENT = "content"
    INTENT = "intent"
    FEATURE = "feature"
    CONTEXT = "context"
    TEMPORAL = "temporal"
    CONCEPT = "concept"


FEATURES = frozenset(
    ("critical", "jailbreak", "dan", "roleplay", "hypothetical", "translation_evasion")
)
_NAMES: dict[Kind, AbstractSet[str]] = {
    Kind.CONTENT: {"", *Attack},
    Kind.INTENT: {"method", "request", "explain", "plan", "glorify"},
    Kind.FEATURE: FEATURES,
    Kind.CONTEXT: {"defensive", "legitimate", "pseudo_legitimate"},
    Kind.TEMPORAL: {"escalation", "revisit", "cumulative", "follow_up"},
}
_DEFAULT_WITH = frozenset(_NAMES[Kind.INTENT])
# What a text may show beside a feature or a temporal pattern that needs it.
_SHOWN = frozenset(("intent", "content", "violation", "past"))


def rule_packs(
    languages: Iterable[str] | None = None, extra_paths: Iterable[str | Path] = ()
) -> tuple[Pack, ...]:
    """Read the bundled rules of `languages` (None: all) and further ones.

    An extra path is one file of rules, or a language folder, which is added for the process with
    all its sections. Raises DataError naming the rule that is broken.
    """
    found: dict[str | Path, Pack] = {pack.language: pack for pack in packs(SECTION, languages)}
    for path in map(Path, extra_paths):
        if path.is_dir():
            code = add_language(path)
            # Added before, it is among them as it was then; it may have no rules.
            found.pop(code, None)
            found |= {pack.language: pack for pack in packs(SECTION) if pack.language == code}
        else:
            found[path] = read_pack(path)
    return tuple(map(checked, found.values()))


def checked(pack: Pack) -> Pack:
    """Return a pack of rules with the default intents filled in; raises DataError."""
    return replace(pack, entries=tuple(_checked(rule, pack.language) for rule in pack.entries))


def _checked(rule: Entry, where: str) -> Entry:
    if rule.kind not in Kind._value2member_map_:
        raise DataError(f"{where}: rule {rule.id} is of an unknown kind.")
    if rule.kind in _NAMES and rule.name not in _NAMES[Kind(rule.kind)]:
        raise DataError(f"{where}: rule {rule.id} has no known name for its kind.")
    needs_directive = rule.kind in (Kind.CONTENT, Kind.CONCEPT)
    if needs_directive and rule.directive not in Directive._value2member_map_:
        raise DataError(f"{where}: rule {rule.id} names no directive.")
    if rule.kind == Kind.CONCEPT and not rule.name:
        raise DataError(f"{where}: rule {rule.id} names no concept.")
    # What nothing has would keep the rule from ever counting.
    unknown = sorted((rule.with_intents - _DEFAULT_WITH) | (rule.needs - _SHOWN))
    if unknown:
        raise DataError(f"{where}: rule {rule.id} asks for {unknown[0]!r}, which no text shows.")
    return rule if rule.with_intents else replace(rule, with_intents=_DEFAULT_WITH)


on_new(SECTION, checked)
