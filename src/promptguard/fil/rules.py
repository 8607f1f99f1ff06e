"""Rules as data: what a pack holds, and how its patterns are spelled out for RE2."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from promptguard.errors import DataError
from promptguard.fil.directives import Directive
from promptguard.fil.scan import letters

LANGUAGES = ("en", "ja", "zh", "ko", "es", "fr", "de", "ru")
_LIST = re.compile(r"\{([a-z_]+)\}")
_MAX_NESTING = 4


class Kind(StrEnum):
    """What a match of a rule means."""

    CONTENT = "content"
    INTENT = "intent"
    FEATURE = "feature"
    CONTEXT = "context"
    TEMPORAL = "temporal"
    CONCEPT = "concept"


_NAMES = {
    Kind.INTENT: {"method", "request", "explain", "plan", "glorify"},
    Kind.FEATURE: {
        "critical", "jailbreak", "dan", "roleplay", "hypothetical", "translation_evasion"
    },
    Kind.CONTEXT: {"defensive", "legitimate", "pseudo_legitimate"},
    Kind.TEMPORAL: {"escalation", "revisit", "cumulative", "follow_up"},
}  # fmt: skip
_DEFAULT_WITH = frozenset({"method", "request", "explain", "plan", "glorify"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One pattern and its meaning.

    `name` is the class of an intent, the feature, context or temporal pattern, or the path of a
    concept (`weapon.explosive`). `directive` is what a content violates or a concept mentions.
    A content violates together with an intent of `with_intents`; `asks` says that the pattern
    holds the intent itself. A sentence that matches `unless` is not meant. `needs` lists what
    else the text must show for a feature to count. `weight` is a multiplier. Examples: `match`
    and `clean` are for the pattern alone, `violates` and `innocent` for the whole judgement.
    """

    id: str
    kind: Kind
    language: str
    pattern: str
    unless: str = ""
    name: str = ""
    directive: str = ""
    weight: float = 1.0
    asks: bool = False
    with_intents: frozenset[str] = _DEFAULT_WITH
    needs: frozenset[str] = frozenset()
    match: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    violates: tuple[str, ...] = ()
    innocent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePack:
    """The rules of one language and the scripts in which they can occur."""

    language: str
    version: int
    scripts: frozenset[str]
    rules: tuple[Rule, ...]


def shipped_packs(languages: Iterable[str] | None = None) -> tuple[RulePack, ...]:
    """Read the bundled packs, all of them or those of `languages`."""
    chosen = tuple(languages) if languages is not None else LANGUAGES
    folder = files("promptguard").joinpath("data/rules")
    packs = []
    for language in chosen:
        if language not in LANGUAGES:
            raise DataError(f"There is no rule pack {language!r}; known: {', '.join(LANGUAGES)}.")
        source = folder.joinpath(f"{language}.toml").read_text(encoding="utf-8")
        packs.append(parse_pack(source, f"{language}.toml"))
    return tuple(packs)


def read_pack(path: str | Path) -> RulePack:
    """Read one pack from a file of the same form as the bundled ones."""
    try:
        return parse_pack(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the rule pack {path}: {error}.") from None


def parse_pack(source: str, where: str) -> RulePack:
    """Read a pack; every fault is a DataError that names the rule."""
    try:
        body = tomllib.loads(source)
        lists = {name: letters(" ".join(text.split())) for name, text in body["lists"].items()}
        has_words = bool(body["words"])
        rules = tuple(
            _rule(entry, body["language"], lists, has_words, where) for entry in body["rule"]
        )
        return RulePack(
            language=body["language"],
            version=body["version"],
            scripts=frozenset(body["scripts"]),
            rules=rules,
        )
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where} is not valid TOML: {error}.") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{where} lacks a part or has one of the wrong form: {error!r}.") from None


def spell_out(pattern: str, lists: Mapping[str, str], *, has_words: bool) -> str:
    """Return a pattern in RE2 syntax over canonical text.

    `{name}` is one of a list, `~` a gap of up to three words, `~~` of up to eight, `@` the rest
    of the word, `#` the end of the sentence; an apostrophe is a space, accents do not matter.
    Where words are separated by spaces, a space is a word boundary and both ends of a pattern
    are boundaries; elsewhere a gap counts characters (8, 20) and nothing is a boundary.
    """
    text = letters(pattern).replace("'", " ").replace("’", " ")
    for _ in range(_MAX_NESTING):
        text = _LIST.sub(lambda found: f"(?:{lists[found[1]]})", text)
    text = text.replace("'", " ").replace("’", " ").replace("#", r"\n")
    if has_words:
        text = text.replace("~~", r"(?:[^ \n]+ ){0,8}").replace("~", r"(?:[^ \n]+ ){0,3}")
        return " (?:" + text.replace("@", r"[^ \n]*") + ") "
    text = text.replace("~~", r"[^\n]{0,20}").replace("~", r"[^\n]{0,8}")
    return text.replace("@", r"[^ \n]*")


def _rule(
    entry: Mapping[str, Any], language: str, lists: Mapping[str, str], has_words: bool, where: str
) -> Rule:
    known = {field for field in Rule.__slots__ if field != "language"} - {"with_intents"} | {"with"}
    name = str(entry.get("id", "?"))
    if unknown := set(entry) - known:
        raise DataError(f"{where}: rule {name} has an unknown field {min(unknown)}.")
    rule = Rule(
        id=name,
        kind=Kind(entry["kind"])
        if entry["kind"] in Kind._value2member_map_
        else _fault(where, name),
        language=language,
        pattern=_pattern(entry["pattern"], lists, has_words),
        unless=_pattern(entry["unless"], lists, has_words) if "unless" in entry else "",
        name=entry.get("name", ""),
        directive=entry.get("directive", ""),
        weight=float(entry.get("weight", 1.0)),
        asks=bool(entry.get("asks", False)),
        with_intents=frozenset(entry.get("with", _DEFAULT_WITH)),
        needs=frozenset(entry.get("needs", ())),
        match=_texts(entry, "match"),
        clean=_texts(entry, "clean"),
        violates=_texts(entry, "violates"),
        innocent=_texts(entry, "innocent"),
    )
    _check(rule, where)
    return rule


def _pattern(given: str | list[str], lists: Mapping[str, str], has_words: bool) -> str:
    joined = given if isinstance(given, str) else "|".join(given)
    return spell_out(joined, lists, has_words=has_words)


def _texts(entry: Mapping[str, Any], field: str) -> tuple[str, ...]:
    found: Sequence[str] = entry.get(field, ())
    return tuple(found)


def _fault(where: str, name: str) -> Kind:
    raise DataError(f"{where}: rule {name} is of an unknown kind.")


def _check(rule: Rule, where: str) -> None:
    if rule.kind in _NAMES and rule.name not in _NAMES[rule.kind]:
        raise DataError(f"{where}: rule {rule.id} has no known name for its kind.")
    needs_directive = rule.kind in (Kind.CONTENT, Kind.CONCEPT)
    if needs_directive and rule.directive not in Directive._value2member_map_:
        raise DataError(f"{where}: rule {rule.id} names no directive.")
    if rule.kind is Kind.CONCEPT and not rule.name:
        raise DataError(f"{where}: rule {rule.id} names no concept.")
    if not (rule.match or rule.violates):
        raise DataError(f"{where}: rule {rule.id} has no example that must match.")
