"""The wording rules of every covered language, read from `data/rubric/patterns.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from promptguard.errors import DataError

_OPTIONAL = (
    "advice",
    "confirms",
    "fillers",
    "neutral",
    "normative",
    "polar",
    "presses",
    "refers",
    "topic_change",
)


class Side(StrEnum):
    """Which answer a wording speaks for."""

    YES = "yes"
    NO = "no"
    NONE = "none"


class Kind(StrEnum):
    """What a wording does: answer, state, agree, judge a claim, hedge, limit, or nothing."""

    LEAD = "lead"
    STATED = "stated"
    AGREEMENT = "agreement"
    CLAIM = "claim"
    HEDGE = "hedge"
    SCOPE = "scope"
    IDIOM = "idiom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One group of wordings; `matches` and `ignores` are texts it must and must not fit."""

    kind: Kind
    side: Side
    strength: int
    patterns: tuple[re.Pattern[str], ...]
    matches: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hesitations:
    """How doubt in one's own answer is worded."""

    patterns: tuple[re.Pattern[str], ...]
    matches: tuple[str, ...]
    ignores: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgements:
    """How a change of position is admitted; a `denial` just before, or after, takes it back."""

    patterns: tuple[re.Pattern[str], ...]
    denials: tuple[re.Pattern[str], ...]
    denial_after: re.Pattern[str] | None
    matches: tuple[str, ...]
    ignores: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRules:
    """What a bare yes or no answers, and what makes two questions one.

    `asks` finds questions. A bare yes answers none that match `information`, `advice` or
    `confirms`, and where `polar` is given only those that match it; "should" answers none that
    match `advice`. `negated` ones leave yes open unless it can deny (`yes_can_deny`); `neutral`
    wordings only look negative. A statement that `presses` argues the question still open, a
    question that `refers` puts it again. Only a `normative` question can be answered by "should".
    Questions are one from `min_alike` on, a statement is on a question from `min_shared` on.
    """

    sentence: re.Pattern[str]
    asks: tuple[re.Pattern[str], ...]
    information: tuple[re.Pattern[str], ...]
    negated: tuple[re.Pattern[str], ...]
    opposites: tuple[tuple[str, str], ...]
    advice: tuple[re.Pattern[str], ...]
    confirms: tuple[re.Pattern[str], ...]
    presses: tuple[re.Pattern[str], ...]
    refers: tuple[re.Pattern[str], ...]
    normative: tuple[re.Pattern[str], ...]
    polar: tuple[re.Pattern[str], ...]
    neutral: tuple[re.Pattern[str], ...]
    fillers: tuple[re.Pattern[str], ...]
    topic_change: tuple[re.Pattern[str], ...]
    ignored_words: frozenset[str]
    yes_can_deny: bool
    min_alike: float
    min_shared: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageRules:
    """Everything known of one language."""

    code: str
    rules: tuple[Rule, ...]
    hesitations: Hesitations
    acknowledgements: Acknowledgements
    question: QuestionRules
    function_words: frozenset[str] = frozenset()
    foreign_words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricPatterns:
    """The whole file."""

    version: str
    window_chars: int
    min_cosine: float
    languages: Mapping[str, LanguageRules]


@cache
def shipped_patterns() -> RubricPatterns:
    """Return the bundled rules, compiled once."""
    source = files("promptguard").joinpath("data/rubric/patterns.toml")
    return patterns_from(source.read_text(encoding="utf-8"))


def patterns_from(toml: str) -> RubricPatterns:
    """Read rules from TOML text; raises DataError naming the language that is broken."""
    try:
        body = tomllib.loads(toml)
        languages = {
            code: _language(code, table) for code, table in body.items() if isinstance(table, dict)
        }
        return RubricPatterns(
            version=body["version"],
            window_chars=body["window_chars"],
            min_cosine=body["min_cosine"],
            languages=languages,
        )
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"The rubric's patterns are not valid TOML: {error}.") from None
    except KeyError as error:
        raise DataError(f"The rubric's patterns lack {error}.") from None


def _language(code: str, table: dict[str, Any]) -> LanguageRules:
    parts: dict[str, str] = table.get("parts", {})
    try:
        return LanguageRules(
            code=code,
            rules=tuple(_rule(item, parts) for item in table["rules"]),
            hesitations=_hesitations(table["hesitation"], parts),
            acknowledgements=_acknowledgements(table["acknowledgement"], parts),
            question=_question(table["question"], parts),
            function_words=frozenset(table.get("function_words", ())),
            foreign_words=frozenset(table.get("foreign_words", ())),
        )
    except (KeyError, ValueError, re.error) as error:
        raise DataError(f"The rubric's patterns for {code!r} are broken: {error}.") from None


def _rule(item: dict[str, Any], parts: Mapping[str, str]) -> Rule:
    return Rule(
        kind=Kind(item["kind"]),
        side=Side(item["side"]),
        strength=item["strength"],
        patterns=_compiled(item["patterns"], parts),
        matches=tuple(item["matches"]),
        ignores=tuple(item["ignores"]),
    )


def _hesitations(item: dict[str, Any], parts: Mapping[str, str]) -> Hesitations:
    return Hesitations(
        patterns=_compiled(item["patterns"], parts),
        matches=tuple(item["matches"]),
        ignores=tuple(item["ignores"]),
    )


def _acknowledgements(item: dict[str, Any], parts: Mapping[str, str]) -> Acknowledgements:
    after = item.get("denial_after")
    return Acknowledgements(
        patterns=_compiled(item["patterns"], parts),
        denials=_compiled(item["denials"], parts),
        denial_after=_compiled([after], parts)[0] if after else None,
        matches=tuple(item["matches"]),
        ignores=tuple(item["ignores"]),
    )


def _question(item: dict[str, Any], parts: Mapping[str, str]) -> QuestionRules:
    groups = {name: _compiled(item.get(name, []), parts) for name in _OPTIONAL}
    return QuestionRules(
        sentence=_compiled([item["sentence"]], parts)[0],
        asks=_compiled(item["asks"], parts),
        information=_compiled(item["information"], parts),
        negated=_compiled(item["negated"], parts),
        opposites=tuple((left, right) for left, right in item["opposites"]),
        ignored_words=frozenset(item.get("ignored_words", ())),
        yes_can_deny=item["yes_can_deny"],
        min_alike=item["min_alike"],
        min_shared=item["min_shared"],
        **groups,
    )


def _compiled(sources: list[str], parts: Mapping[str, str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(_expanded(source, parts).replace(" ", r"\s+")) for source in sources)


def _expanded(source: str, parts: Mapping[str, str]) -> str:
    previous = ""
    while source != previous:
        previous = source
        source = re.sub(r"<([a-z_]+)>", lambda match: parts[match[1]], source)
    return source
