"""What one message says by itself: the rules it matches, sentence by sentence, and together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from promptguard.fil.directives import Directive
from promptguard.fil.rules import Kind
from promptguard.patterns import Entry, Pack, PatternSet, any_of, compiled
from promptguard.patterns.pack import joined, letters

END = "\n"
"""Stands between sentences, with a space on either side; patterns never reach across it."""

# Possessive, and begun only where a run of signs begins: linear on any text.
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]]*+(?=\s|$)|[。！？…;；]+|\n+")
# Underscores are no words either; signs and underscores in turn are one gap.
_NOT_WORD = re.compile(r"(?:[^\w\n]|_)+")
_LATIN = re.compile("[a-zß-ɏ]")
_SCRIPTS = (
    ("latin", _LATIN),
    ("cyrillic", re.compile("[Ѐ-ԯ]")),
    ("han", re.compile("[一-鿿]")),
    ("kana", re.compile("[぀-ヿ]")),
    ("hangul", re.compile("[가-힣]")),
)
_TOLD = frozenset(name for name, _ in _SCRIPTS)
_LIGHT = frozenset({Kind.INTENT, Kind.CONTEXT})
_SHORT_SENTENCE = 60
"""Canonical characters up to which a sentence leans on its neighbours ("Tell me how.")."""


def canonical(text: str) -> str:
    """Return ` word word \\n word \\n `: single spaces, a sentence end after every sentence."""
    marked = _SENTENCE_END.sub(END, letters(text))
    spaced = _NOT_WORD.sub(" ", marked)
    # No more than three blanks stand together here, where a gap lies between two ends.
    return f" {spaced} {END} ".replace(END, f" {END} ").replace("  ", " ").replace("  ", " ")


def sentences(scan: str) -> list[str]:
    """Return the sentences of a canonical text, none empty, each with its end."""
    return [f"{part}{END} " for part in scan.split(END) if part.strip()]


def scripts(scan: str) -> frozenset[str]:
    """Return which scripts occur in a canonical text."""
    if scan.isascii():
        return frozenset(("latin",))
    return frozenset(name for name, letter in _SCRIPTS if letter.search(scan))


class Matcher:
    """The rules of all packs.

    Light ones are intents and contexts, which matter only next to the others: content, features,
    concepts and temporal patterns, which most texts lack.
    """

    def __init__(self, packs: Iterable[Pack]) -> None:
        by_scripts: dict[frozenset[str], list[Entry]] = {}
        for pack in packs:
            # Rules for scripts that a text does not have are then not searched in it; those for
            # scripts that are not told apart are searched in every text.
            told = pack.scripts if pack.scripts <= _TOLD else frozenset()
            by_scripts.setdefault(told, []).extend(pack.entries)
        rules = [rule for group in by_scripts.values() for rule in group]
        self._sets = [
            (is_light, told, PatternSet([r for r in group if (r.kind in _LIGHT) is is_light]))
            for told, group in by_scripts.items()
            for is_light in (False, True)
        ]
        # By their words: rules of two packs may have one id.
        self._exceptions = {
            rule.unless: compiled(joined(rule.unless), rule) for rule in rules if rule.unless
        }
        going_on = [r for r in rules if (r.kind, r.name) == (Kind.TEMPORAL, "follow_up")]
        self._follow_up = any_of(going_on) if going_on else None

    def matched(self, scan: str, scripts: frozenset[str], *, is_light: bool) -> tuple[Entry, ...]:
        """Return the rules, light or not, that a canonical text matches."""
        found: tuple[Entry, ...] = ()
        for kind, told, rules in self._sets:
            if kind is is_light and (not told or told & scripts):
                found += rules.match(scan)
        return found

    def meant(self, rules: Iterable[Entry], sentence: str) -> tuple[Entry, ...]:
        """Return those of the rules matched in `sentence` that it does not except."""
        return tuple(
            rule
            for rule in rules
            if not rule.unless or not self._exceptions[rule.unless].search(sentence)
        )

    def without_follow_up(self, scan: str) -> str:
        """Return the canonical text without the words that only ask to go on."""
        left: str = self._follow_up.sub(" ", scan) if self._follow_up else scan
        return left


class Reader:
    """One canonical text: `whole` are the rules that match anywhere, `parts` the sentences."""

    def __init__(self, matcher: Matcher, scan: str) -> None:
        self._matcher = matcher
        self._scan = scan
        self._scripts = scripts(scan)
        self.whole = matcher.matched(scan, self._scripts, is_light=False)
        # Most texts match no rule at all and need not be cut.
        self.parts = sentences(scan) if self.whole else []
        self._how: dict[int, tuple[Entry, ...]] = {}

    def what(self, index: int) -> tuple[Entry, ...]:
        """Return the rules about what a sentence says, but for those it excepts itself from."""
        sentence = self.parts[index]
        found = self.whole
        if len(self.parts) > 1:
            found = self._matcher.matched(sentence, self._scripts, is_light=False)
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
            sentence = self.parts[index]
            self._how[index] = self._matcher.matched(sentence, self._scripts, is_light=True)
        return self._how[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome for one text or several views of it. Mappings go from name to weight.

    `violated` are directives whose content occurs with intent, `mentioned` those only touched;
    `attacks` is what the violations do.
    `contexts` holds the frames around the contents, or of the whole text where it has none.
    `temporal` patterns count by themselves; `latent` has those that count after a risky past too.
    """

    violated: Mapping[str, float] = field(default_factory=dict)
    attacks: frozenset[str] = frozenset()
    mentioned: frozenset[str] = frozenset()
    concepts: tuple[str, ...] = ()
    features: Mapping[str, float] = field(default_factory=dict)
    contexts: Mapping[str, float] = field(default_factory=dict)
    temporal: Mapping[str, float] = field(default_factory=dict)
    latent: Mapping[str, float] = field(default_factory=dict)
    intents: frozenset[str] = frozenset()
    has_content: bool = False
    has_harmful_intent: bool = False
    rule_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class _Tally:
    """What the sentences read so far add up to."""

    violated: dict[str, float] = field(default_factory=dict)
    attacks: set[str] = field(default_factory=set)
    contexts: dict[str, float] = field(default_factory=dict)
    intents: set[str] = field(default_factory=set)
    kept: list[Entry] = field(default_factory=list)
    has_harmful_intent: bool = False


def find(matcher: Matcher, text: str) -> Finding:
    """Return what a text says by itself."""
    reader = Reader(matcher, canonical(text))
    if not reader.whole:
        return Finding()
    tally = _Tally()
    for index in range(len(reader.parts)):
        _read_sentence(reader, index, tally)
    tally.kept += [rule for rule in reader.across() if rule not in tally.kept]
    contents = [rule for rule in tally.kept if rule.kind == Kind.CONTENT]
    _read_surroundings(reader, tally, has_content=bool(contents))
    shown = {"intent"} if tally.intents else set()
    shown |= {"content"} if contents else set()
    shown |= {"violation"} if tally.violated else set()
    concepts = [rule for rule in tally.kept if rule.kind == Kind.CONCEPT]
    touched = {rule.directive for rule in (*contents, *concepts)}
    return Finding(
        violated=tally.violated,
        attacks=frozenset(tally.attacks),
        mentioned=frozenset(touched - set(tally.violated)),
        concepts=tuple(dict.fromkeys(rule.name for rule in concepts)),
        features=_by_name(tally.kept, Kind.FEATURE, shown),
        contexts=tally.contexts,
        temporal=_by_name(tally.kept, Kind.TEMPORAL, shown),
        latent=_by_name(tally.kept, Kind.TEMPORAL, {*shown, "past"}),
        intents=frozenset(tally.intents),
        has_content=bool(contents),
        has_harmful_intent=tally.has_harmful_intent or bool(tally.violated),
        rule_ids=tuple(dict.fromkeys(rule.id for rule in tally.kept)),
    )


def together(parts: Sequence[Finding]) -> Finding:
    """Return what several views of one message say together."""
    violated = _strongest(part.violated for part in parts)
    return Finding(
        violated=violated,
        attacks=frozenset().union(*(part.attacks for part in parts)),
        mentioned=frozenset().union(*(part.mentioned for part in parts)) - set(violated),
        concepts=tuple(dict.fromkeys(name for part in parts for name in part.concepts)),
        features=_strongest(part.features for part in parts),
        contexts=_strongest(part.contexts for part in parts),
        temporal=_strongest(part.temporal for part in parts),
        latent=_strongest(part.latent for part in parts),
        intents=frozenset().union(*(part.intents for part in parts)),
        has_content=any(part.has_content for part in parts),
        has_harmful_intent=any(part.has_harmful_intent for part in parts),
        rule_ids=tuple(dict.fromkeys(name for part in parts for name in part.rule_ids)),
    )


def _read_sentence(reader: Reader, index: int, tally: _Tally) -> None:
    rules = reader.what(index)
    # How something is said matters only next to content or a feature, and is not looked up here.
    if not any(rule.kind in (Kind.CONTENT, Kind.FEATURE) for rule in rules):
        tally.kept += rules
        return
    asked = reader.intents_at(index)
    around = reader.contexts_at(index)
    # A sentence about protection from what it names.
    is_defensive = "defensive" in reader.names(index, Kind.CONTEXT)
    tally.intents |= asked
    _weaken(tally.contexts, around)
    for rule in rules:
        is_critical = rule.kind == Kind.FEATURE and rule.name == "critical"
        if is_critical and is_defensive:
            continue
        tally.kept.append(rule)
        if rule.kind == Kind.CONTENT and _is_meant(rule, asked, around, is_defensive):
            weight = max(rule.weight, tally.violated.get(rule.directive, 0.0))
            tally.violated[rule.directive] = weight
            tally.attacks.add(rule.name or Directive(rule.directive).attack)
        if rule.kind == Kind.CONTENT or is_critical:
            tally.has_harmful_intent |= bool(asked) and not is_defensive


def _read_surroundings(reader: Reader, tally: _Tally, *, has_content: bool) -> None:
    """Look at the other sentences too, where those with content left something open."""
    if tally.intents and (has_content or tally.contexts):
        return
    for index in range(len(reader.parts)):
        tally.intents |= reader.names(index, Kind.INTENT)
        if not has_content:
            _weaken(tally.contexts, reader.contexts_at(index))


def _is_meant(
    rule: Entry, asked: set[str], around: Mapping[str, float], is_defensive: bool
) -> bool:
    """Whether content comes with intent; a mere explanation in an honest frame is no intent."""
    if rule.asks:
        return True
    matching = asked & rule.with_intents
    if matching == {"explain"} and "legitimate" in around:
        return False
    return bool(matching) and not is_defensive


def _weaken(contexts: dict[str, float], more: Mapping[str, float]) -> None:
    for name, weight in more.items():
        contexts[name] = min(weight, contexts.get(name, weight))


def _by_name(rules: Iterable[Entry], kind: Kind, shown: set[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for rule in rules:
        if rule.kind == kind and rule.needs <= shown:
            found[rule.name] = max(rule.weight, found.get(rule.name, 0.0))
    return found


def _strongest(mappings: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for mapping in mappings:
        for name, weight in mapping.items():
            found[name] = max(weight, found.get(name, weight))
    return found
