"""The wordings of every covered language: the section `rubric`, compiled."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from promptguard.errors import DataError
from promptguard.patterns import (
    Entry,
    Pack,
    PatternSet,
    any_of,
    compiled,
    language_cache,
    on_new,
    packs,
)
from promptguard.patterns.pack import joined
from promptguard.patterns.wordlist import WordList
from promptguard.rubrics.folding import fold

_SECTION = "rubric"
_OTHER_LANGUAGES = "any"
_FACTS = ("fact", "deed")
_VALUES = ("value", "reply")
_NEEDED: Mapping[str, Sequence[str]] = {
    "question": ("asks", "stop", "clause", "information", "negated"),
    "echo": ("opening", "ending", "negates", "agrees", "denies", "unsure"),
    "pressure": (
        "presses", "supposes", "refutes", "refers", "objects", "doubts", "reserves", "affirms",
        "confirms", "yields", "contrasts", "reports", "negates",
    ),
}  # fmt: skip


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One entry: what it does, for which side, how strongly."""

    entry: Entry
    kind: Kind
    side: Side
    strength: float
    patterns: tuple[Any, ...]
    unless: Any

    def matches(self, folded: str) -> Iterator[Found]:
        """Yield where it stands; a group in a pattern is the wording, the rest its context."""
        for pattern in self.patterns:
            for found in pattern.finditer(folded):
                if self.unless is None or not self.unless.search(found.group()):
                    group = 1 if pattern.groups and found.start(1) >= 0 else 0
                    yield Found(self, self.side, *found.span(group))


@dataclass(frozen=True, slots=True)
class Found:
    """A wording in a text: for which side it speaks there, its place, and the words around it."""

    wording: Wording
    side: Side
    start: int
    end: int
    clause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """How a speaker words a fact of its own, or gives an attribute that has one value.

    Its first pattern in a clause counts. The group in it is what the fact is on, or the value; a
    fact without one is on what the entry names.
    """

    entry: Entry
    patterns: tuple[Any, ...]
    unless: Any

    def on(self, clause: str) -> str:
        """Return what a folded clause says it of, or nothing; an excepted clause says nothing."""
        matches = (pattern.search(clause) for pattern in self.patterns)
        found = next((match for match in matches if match), None)
        if found is None or (self.unless is not None and self.unless.search(clause)):
            return ""
        # A group that takes no part in the match, one of alternatives, tells nothing.
        return str(found.group(1) or "") if found.re.groups else self.entry.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A known value of a kind of attribute; `part` is a word for only a part of it, or nothing.

    All words of a `member` entry mean one value. Of a `region` the first means the whole, each
    further one another part of it.
    """

    kind: str
    member: str
    part: str


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


class Groups(dict[str, Group]):
    """Groups by name; one that a language does not have matches nowhere."""

    def fits(self, name: str, folded: str) -> bool:
        """Return whether the group `name` matches anywhere in a folded text."""
        return name in self and self[name].fits(folded)

    def spans(self, name: str, folded: str) -> Iterator[tuple[int, int]]:
        """Yield where the patterns of the group `name` match, whatever it excepts."""
        if name in self:
            yield from (found.span() for found in self[name].pattern.finditer(folded))

    def without(self, name: str, folded: str, by: str = "") -> str:
        """Return a folded text with `by` wherever the patterns of the group `name` match."""
        left: str = self[name].pattern.sub(by, folded) if name in self else folded
        return left


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
    denials: Groups
    pressure: Groups
    questions: Groups
    facts: tuple[Statement, ...]
    general: WordList[str]
    light: frozenset[str]
    echoes: Groups
    speaker: str
    values: tuple[Statement, ...]
    wanted: Groups
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
        return self.questions.fits(name, folded)

    def clauses(self, folded: str) -> Iterator[tuple[int, int]]:
        """Yield the bounds of each clause in a folded text."""
        start = 0
        for stop, after in self.questions.spans("clause", folded):
            yield start, stop
            start = after
        yield start, len(folded)

    def found(self, folded: str) -> Iterator[Found]:
        """Yield every wording in a folded text, overlapping ones too."""
        # One pass tells which of the many wordings occur; only those are looked for by place.
        ids = {entry.id for entry in self.prefilter.match(folded)}
        for wording in self.wordings:
            if wording.entry.id in ids:
                yield from wording.matches(folded)

    def stated(self, clause: str) -> Iterator[tuple[Statement, str]]:
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
    foreign = [w for pack in chosen for entry in pack.of_kind("foreign") for w in entry.words]
    return RubricPatterns(
        languages={p.language: _language(p) for p in chosen if p.language != _OTHER_LANGUAGES},
        foreign_words=frozenset(map(fold, foreign)),
        **_numbers(),
    )


@cache
def _numbers() -> Mapping[str, Any]:
    path = files("promptguard").joinpath("data/rubric/numbers.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _language(pack: Pack) -> LanguageRules:
    wordings = tuple(_wording(entry) for entry in pack.entries if entry.kind in list(Kind))
    facts = _statements(pack, _FACTS)
    return LanguageRules(
        code=pack.language,
        wordings=wordings,
        hesitation=_one(pack, "hesitation"),
        acknowledgement=_one(pack, "acknowledgement"),
        denials=_groups(pack, "denial"),
        pressure=_groups(pack, "pressure"),
        questions=_groups(pack, "question"),
        facts=facts,
        general=WordList(
            ((word, entry.name) for entry in pack.of_kind("general") for word in entry.words),
            _folded_term,
        ),
        light=_words(pack, "light"),
        echoes=_groups(pack, "echo"),
        speaker="".join(sorted(_words(pack, "speaker"))[:1]),
        values=_statements(pack, _VALUES),
        wanted=_groups(pack, "wanted"),
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


def _statements(pack: Pack, kinds: Sequence[str]) -> tuple[Statement, ...]:
    return tuple(_statement(entry) for kind in kinds for entry in pack.of_kind(kind))


def _statement(entry: Entry) -> Statement:
    patterns = tuple(compiled(pattern, entry) for pattern in entry.patterns)
    groups = {pattern.groups for pattern in patterns}
    if entry.kind in _VALUES and groups - {1}:
        raise DataError(f"{entry.id} needs one group in each pattern: the value.")
    if groups - {0, 1}:
        raise DataError(f"{entry.id} has several groups in a pattern: one is what the fact is on.")
    return Statement(entry=entry, patterns=patterns, unless=_unless(entry))


def _group(entry: Entry) -> Group:
    return Group(entry=entry, pattern=any_of([entry]), unless=_unless(entry))


def _groups(pack: Pack, kind: str) -> Groups:
    found = Groups({entry.name: _group(entry) for entry in pack.of_kind(kind)})
    needed = set(_NEEDED.get(kind, ()))
    # Giving way and echoes are judged by all groups together; a language has every one or none.
    if (found or kind == "question") and not (
        found.keys() == needed if kind == "pressure" else found.keys() >= needed
    ):
        wanted = ", ".join(_NEEDED[kind])
        raise DataError(f"{pack.language}/rubric.toml needs all of {wanted} (kind {kind!r}).")
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


on_new(_SECTION, _language)
