"""Rules of the Frozen Instinct Layer: the section `rules` of a language, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from promptguard.errors import DataError
from promptguard.fil.directives import Attack, Directive
from promptguard.patterns import Entry, Pack, add_language, packs, read_pack

SECTION = "rules"


class Kind(StrEnum):
    """What a match of a rule means."""

    CONTENT = "content"
    INTENT = "intent"
    FEATURE = "feature"
    CONTEXT = "context"
    TEMPORAL = "temporal"
    CONCEPT = "concept"


_NAMES = {
    Kind.CONTENT: {"", *Attack},
    Kind.INTENT: {"method", "request", "explain", "plan", "glorify"},
    Kind.FEATURE: {
        "critical", "jailbreak", "dan", "roleplay", "hypothetical", "translation_evasion"
    },
    Kind.CONTEXT: {"defensive", "legitimate", "pseudo_legitimate"},
    Kind.TEMPORAL: {"escalation", "revisit", "cumulative", "follow_up"},
}  # fmt: skip
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
    bundled = packs(SECTION, languages)
    known = {pack.language for pack in bundled}
    extra = [found for path in extra_paths for found in _extra(Path(path))]
    # A folder given twice, or added before, is among the bundled ones already.
    fresh = [pack for is_folder, pack in extra if not (is_folder and pack.language in known)]
    return tuple(checked(pack) for pack in (*bundled, *fresh))


def checked(pack: Pack) -> Pack:
    """Return a pack of rules with the default intents filled in; raises DataError."""
    return replace(pack, entries=tuple(_checked(rule, pack.language) for rule in pack.entries))


def _extra(path: Path) -> list[tuple[bool, Pack]]:
    if not path.is_dir():
        return [(False, read_pack(path))]
    code = add_language(path)
    return [(True, pack) for pack in packs(SECTION) if pack.language == code]


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
