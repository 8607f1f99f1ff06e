"""The wordings of every covered language: the section `rubric`, compiled."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from promptguard.errors import DataError
from promptguard.patterns import Entry, Pack, PatternSet, any_of, compiled, language_cache, packs
from promptguard.patterns.pack import joined
from promptguard.patterns.wordlist import WordList
from promptguard.rubrics.folding import fold
from promptguard.rubrics.statements import FactWording, Member, ValueWording

_SECTION = "rubric"
_OTHER_LANGUAGES = "any"
_NEEDED_QUESTIONS = ("asks", "stop", "clause", "information", "negated")
_VALUES = ("value", "reply")
_ECHO = ("opening", "ending", "negates", "agrees", "denies", "unsure")
_PRESSURE = (
    "presses",
    "supposes",
    "refutes",
    "refers",
    "objects",
    "doubts",
    "reserves",
    "affirms",
    "confirms",
    "yields",
    "contrasts",
    "reports",
    "negates",
)


class Side(StrEnum):
    """Which answer a wording speaks for."""

    YES = "yes"
    NO = "no"
    NONE = "none"

    @property
    def opposite(self) -> Side:
        """The other side."""
        return {Side.YES: Side.NO, Side.NO: Side.YES}.get(self, self)


class Kind(StrEnum):
    """What a wording does: answer, state, judge a thing, agree, judge a claim, hedge, or limit.

    A predicate ("is wrong") answers only a question with the same or an opposite word in it.
    """

    LEAD = "lead"
    STATED = "stated"
    PREDICATE = "predicate"
    AGREEMENT = "agreement"
    CLAIM = "claim"
    HEDGE = "hedge"
    SCOPE = "scope"
    IDIOM = "idiom"


@dataclass(frozen=True, slots=True)
class Match:
    """Where a wording stands in a folded text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One entry: what it does, for which side, how strongly."""

    entry: Entry
    kind: Kind
    side: Side
    strength: float
    patterns: tuple[Any, ...]
    unless: Any

    def matches(self, folded: str) -> Iterator[Match]:
        """Yield where it stands; a group in a pattern is the wording, the rest its context."""
        for pattern in self.patterns:
            for found in pattern.finditer(folded):
                if self.unless is not None and self.unless.search(found.group()):
                    continue
                group = 1 if pattern.groups and found.start(1) >= 0 else 0
                yield Match(found.start(group), found.end(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Patterns with one meaning, but for texts that match `unless`."""

    entry: Entry
    pattern: Any
    unless: Any

    def fits(self, folded: str) -> bool:
        """Return whether it matches anywhere."""
        if self.pattern.search(folded) is None:
            return False
        return self.unless is None or self.unless.search(folded) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageRules:
    """Everything known of one language. `questions` are groups by name; `scales` finds words
    that stand for a concept, with their sign: 1, -1 for the opposite, 0 for a plain synonym.
    `pressure` has the groups by which a claim is pressed, rejected and granted, or none.
    `facts` are what a speaker says of itself, `general` finds words for cases of a thing, and
    `light` words tell no two facts apart. `echoes` has the groups by which an answer in words of
    the question is read, or none, and `speaker` is the word for who speaks. `values` are attributes
    with one value each, `wanted` the questions for them; `members` finds words for values that
    exclude each other, and `listed` names the attributes that have such words."""

    code: str
    wordings: tuple[Wording, ...]
    hesitation: Group
    acknowledgement: Group
    denials: Mapping[str, Group]
    pressure: Mapping[str, Group]
    questions: Mapping[str, Group]
    facts: tuple[FactWording, ...]
    general: WordList[str]
    light: frozenset[str]
    echoes: Mapping[str, Group]
    speaker: str
    values: tuple[ValueWording, ...]
    wanted: Mapping[str, Group]
    members: WordList[Member]
    listed: frozenset[str]
    scales: WordList[tuple[str, int]]
    ignored: frozenset[str]
    function_words: frozenset[str]
    yes_can_deny: bool
    min_alike: float
    min_shared: float
    prefilter: PatternSet
    fact_prefilter: PatternSet

    def asks(self, name: str, folded: str) -> bool:
        """Return whether a folded text matches the question group `name`; no group: never."""
        group = self.questions.get(name)
        return group is not None and group.fits(folded)

    def found(self, folded: str) -> Iterator[tuple[Wording, Match]]:
        """Yield every wording in a folded text, overlapping ones too."""
        # One pass tells which of the many wordings occur; only those are looked for by place.
        ids = {entry.id for entry in self.prefilter.match(folded)}
        for wording in self.wordings:
            if wording.entry.id in ids:
                for match in wording.matches(folded):
                    yield wording, match

    def stated(self, clause: str) -> Iterator[tuple[FactWording, str]]:
        """Yield every fact that a folded clause states, with what it is on."""
        ids = {entry.id for entry in self.fact_prefilter.match(clause)}
        for wording in self.facts:
            if wording.entry.id in ids and (on := wording.on(clause)):
                yield wording, on


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricPatterns:
    """All covered languages, the words of others, and the numbers they share."""

    version: str
    window_chars: int
    min_cosine: float
    compared_turns: int
    objection_chars: int
    min_rejections: int
    min_granted: int
    unnegated_chars: int
    languages: Mapping[str, LanguageRules]
    foreign_words: frozenset[str]


@language_cache
def shipped_patterns() -> RubricPatterns:
    """Return the rules of every known language, compiled once."""
    return patterns_from(packs(_SECTION))


def patterns_from(found: Iterable[Pack]) -> RubricPatterns:
    """Compile packs; raises DataError naming the language that is broken."""
    chosen = tuple(found)
    numbers = _numbers()
    covered = [pack for pack in chosen if pack.language != _OTHER_LANGUAGES]
    foreign = [w for p in chosen for e in p.of_kind("foreign") for w in e.words]
    return RubricPatterns(
        version=str(numbers["version"]),
        window_chars=int(numbers["window_chars"]),
        min_cosine=float(numbers["min_cosine"]),
        compared_turns=int(numbers["compared_turns"]),
        objection_chars=int(numbers["objection_chars"]),
        min_rejections=int(numbers["min_rejections"]),
        min_granted=int(numbers["min_granted"]),
        unnegated_chars=int(numbers["unnegated_chars"]),
        languages={pack.language: _language(pack) for pack in covered},
        foreign_words=frozenset(map(fold, foreign)),
    )


@cache
def _numbers() -> Mapping[str, Any]:
    path = files("promptguard").joinpath("data/rubric/numbers.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _language(pack: Pack) -> LanguageRules:
    wordings = tuple(_wording(entry) for entry in pack.entries if entry.kind in list(Kind))
    facts = tuple(_fact(entry) for kind in ("fact", "deed") for entry in pack.of_kind(kind))
    questions = {entry.name: _group(entry) for entry in pack.of_kind("question")}
    for name in _NEEDED_QUESTIONS:
        if name not in questions:
            raise DataError(f"{pack.language}/rubric.toml has no question group {name!r}.")
    return LanguageRules(
        code=pack.language,
        wordings=wordings,
        hesitation=_one(pack, "hesitation"),
        acknowledgement=_one(pack, "acknowledgement"),
        denials={entry.name: _group(entry) for entry in pack.of_kind("denial")},
        pressure=_pressure(pack),
        questions=questions,
        facts=facts,
        general=WordList(_general(pack), _folded_term),
        light=_words(pack, "light"),
        echoes=_echoes(pack),
        speaker="".join(sorted(_words(pack, "speaker"))[:1]),
        values=tuple(_value(entry) for kind in _VALUES for entry in pack.of_kind(kind)),
        wanted={entry.name: _group(entry) for entry in pack.of_kind("wanted")},
        members=WordList(_members(pack), _folded_term),
        listed=frozenset(
            entry.name for kind in ("member", "region") for entry in pack.of_kind(kind)
        ),
        scales=WordList(_scales(pack), _folded_term),
        ignored=_words(pack, "ignored"),
        function_words=_words(pack, "function"),
        yes_can_deny=bool(pack.numbers.get("yes_can_deny", 0)),
        min_alike=pack.numbers.get("min_alike", 0.6),
        min_shared=pack.numbers.get("min_shared", 0.3),
        prefilter=PatternSet([wording.entry for wording in wordings]),
        fact_prefilter=PatternSet([wording.entry for wording in facts]),
    )


def _wording(entry: Entry) -> Wording:
    if entry.name not in list(Side):
        raise DataError(f"{entry.id} speaks for no side: use yes, no or none.")
    return Wording(
        entry=entry,
        kind=Kind(entry.kind),
        side=Side(entry.name),
        strength=entry.weight,
        patterns=tuple(compiled(pattern, entry) for pattern in entry.patterns),
        unless=_unless(entry),
    )


def _fact(entry: Entry) -> FactWording:
    patterns = tuple(compiled(pattern, entry) for pattern in entry.patterns)
    if any(pattern.groups > 1 for pattern in patterns):
        raise DataError(f"{entry.id} has several groups in a pattern: one is what the fact is on.")
    return FactWording(entry=entry, patterns=patterns, unless=_unless(entry))


def _value(entry: Entry) -> ValueWording:
    patterns = tuple(compiled(pattern, entry) for pattern in entry.patterns)
    if any(pattern.groups != 1 for pattern in patterns):
        raise DataError(f"{entry.id} needs one group in each pattern: the value.")
    return ValueWording(entry=entry, patterns=patterns, unless=_unless(entry))


def _group(entry: Entry) -> Group:
    return Group(entry=entry, pattern=any_of([entry]), unless=_unless(entry))


def _pressure(pack: Pack) -> Mapping[str, Group]:
    found = {entry.name: _group(entry) for entry in pack.of_kind("pressure")}
    # Giving way is judged by all of them together; a language has every group or none.
    if found and found.keys() != set(_PRESSURE):
        raise DataError(f"{pack.language}/rubric.toml needs all of {', '.join(_PRESSURE)}.")
    return found


def _echoes(pack: Pack) -> Mapping[str, Group]:
    found = {entry.name: _group(entry) for entry in pack.of_kind("echo")}
    if found and not found.keys() >= set(_ECHO):
        raise DataError(f"{pack.language}/rubric.toml needs all echoes: {', '.join(_ECHO)}.")
    return found


def _unless(entry: Entry) -> Any:
    return compiled(joined(entry.unless), entry) if entry.unless else None


def _one(pack: Pack, kind: str) -> Group:
    found = pack.of_kind(kind)
    if len(found) != 1:
        raise DataError(f"{pack.language}/rubric.toml needs one entry of the kind {kind!r}.")
    return _group(found[0])


def _scales(pack: Pack) -> Iterator[tuple[str, tuple[str, int]]]:
    for kind, is_scale in (("scale", True), ("synonym", False)):
        for entry in pack.of_kind(kind):
            for word in entry.words:
                sign = (1 if entry.weight > 0 else -1) if is_scale else 0
                yield word, (entry.name, sign)


def _general(pack: Pack) -> Iterator[tuple[str, str]]:
    for entry in pack.of_kind("general"):
        for word in entry.words:
            yield word, entry.name


def _members(pack: Pack) -> Iterator[tuple[str, Member]]:
    for kind, has_parts in (("member", False), ("region", True)):
        for entry in pack.of_kind(kind):
            for at, word in enumerate(entry.words):
                part = word if has_parts and at else ""
                yield word, Member(kind=entry.name, member=entry.id, part=part)


def _folded_term(word: str) -> str:
    # Folding blanks the star, which marks emphasis in a text but a stem in a term.
    return "*".join(map(fold, word.split("*")))


def _words(pack: Pack, kind: str) -> frozenset[str]:
    return frozenset(fold(word) for entry in pack.of_kind(kind) for word in entry.words)
