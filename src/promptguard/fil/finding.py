"""What one message says by itself: contents, intents, frames, and what they violate together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from promptguard.fil.matcher import Matcher
from promptguard.fil.rules import Kind, Rule
from promptguard.fil.scan import scripts, sentences

_SHORT_SENTENCE = 60
"""Canonical characters up to which a sentence leans on its neighbours ("Tell me how.")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome for one text or several views of it. Mappings go from name to weight.

    `violated` are directives whose content occurs with intent, `mentioned` those only touched.
    `contexts` holds the frames around the contents, or of the whole text where it has none.
    """

    violated: Mapping[str, float] = field(default_factory=dict)
    mentioned: frozenset[str] = frozenset()
    concepts: tuple[str, ...] = ()
    features: Mapping[str, float] = field(default_factory=dict)
    contexts: Mapping[str, float] = field(default_factory=dict)
    temporal: Mapping[str, float] = field(default_factory=dict)
    intents: frozenset[str] = frozenset()
    has_content: bool = False
    has_harmful_intent: bool = False
    rule_ids: tuple[str, ...] = ()


class _Reader:
    """The sentences of one canonical text and the rules that match each, asked when needed."""

    def __init__(self, matcher: Matcher, scan: str) -> None:
        self._matcher = matcher
        self._scripts = scripts(scan)
        self.whole = matcher.what(scan, self._scripts)
        self.parts = sentences(scan) if self.whole else []
        self._how: dict[int, tuple[Rule, ...]] = {}

    def what(self, index: int) -> tuple[Rule, ...]:
        sentence = self.parts[index]
        is_whole = len(self.parts) == 1
        found = self.whole if is_whole else self._matcher.what(sentence, self._scripts)
        return self._matcher.meant(found, sentence)

    def how(self, index: int) -> tuple[Rule, ...]:
        if index not in self._how:
            self._how[index] = self._matcher.how(self.parts[index], self._scripts)
        return self._how[index]

    def names(self, index: int, kind: Kind) -> set[str]:
        return {rule.name for rule in self.how(index) if rule.kind is kind}

    def intents_at(self, index: int) -> set[str]:
        """The intents of a sentence, and of its neighbours where one of the two is short."""
        found = self.names(index, Kind.INTENT)
        for other in (index - 1, index + 1):
            if 0 <= other < len(self.parts) and len(self.parts[other]) <= _SHORT_SENTENCE:
                found |= self.names(other, Kind.INTENT)
        return found

    def contexts_at(self, index: int) -> dict[str, float]:
        """The frames of a sentence; an honest or would-be honest one may stand just before it."""
        found: dict[str, float] = {}
        for at in (index - 1, index):
            for rule in self.how(at) if at >= 0 else ():
                is_near = at == index or rule.name != "defensive"
                if rule.kind is Kind.CONTEXT and is_near:
                    found[rule.name] = min(rule.weight, found.get(rule.name, rule.weight))
        return found


def find(matcher: Matcher, scan: str) -> Finding:
    """Return what the canonical text `scan` says by itself."""
    reader = _Reader(matcher, scan)
    if not reader.whole:
        return Finding()
    violated: dict[str, float] = {}
    mentioned: set[str] = set()
    contexts: dict[str, float] = {}
    intents: set[str] = set()
    kept: list[Rule] = []
    has_content = has_intent = False
    for index in range(len(reader.parts)):
        rules = reader.what(index)
        if not any(rule.kind in (Kind.CONTENT, Kind.FEATURE) for rule in rules):
            kept += rules
            continue
        is_defensive = "defensive" in reader.names(index, Kind.CONTEXT)
        around = reader.contexts_at(index)
        contexts = {**around, **{k: min(v, around.get(k, v)) for k, v in contexts.items()}}
        asked = reader.intents_at(index)
        intents |= asked
        for rule in rules:
            if rule.kind is Kind.FEATURE and is_defensive and rule.name == "critical":
                continue
            kept.append(rule)
            if rule.kind is Kind.CONTENT:
                has_content = True
                mentioned.add(rule.directive)
                if _is_meant(rule, asked, around, is_defensive=is_defensive):
                    violated[rule.directive] = max(rule.weight, violated.get(rule.directive, 0.0))
            if rule.kind is Kind.CONTENT or rule.name == "critical":
                has_intent |= bool(asked) and not is_defensive
    if not intents or not contexts:
        rest = [rule for index in range(len(reader.parts)) for rule in reader.how(index)]
        intents |= {rule.name for rule in rest if rule.kind is Kind.INTENT}
        if not has_content:
            for rule in rest:
                if rule.kind is Kind.CONTEXT:
                    contexts[rule.name] = min(rule.weight, contexts.get(rule.name, rule.weight))
    shown = {"intent"} if intents else set()
    shown |= {"content"} if has_content else set()
    shown |= {"violation"} if violated else set()
    features = _by_name(kept, Kind.FEATURE, shown)
    concepts = [rule for rule in kept if rule.kind is Kind.CONCEPT]
    return Finding(
        violated=violated,
        mentioned=frozenset(mentioned | {rule.directive for rule in concepts}) - set(violated),
        concepts=tuple(dict.fromkeys(rule.name for rule in concepts)),
        features=features,
        contexts=contexts,
        temporal=_by_name(kept, Kind.TEMPORAL, shown),
        intents=frozenset(intents),
        has_content=has_content,
        has_harmful_intent=has_intent or bool(violated),
        rule_ids=tuple(dict.fromkeys(rule.id for rule in kept)),
    )


def _is_meant(
    rule: Rule, asked: set[str], around: Mapping[str, float], *, is_defensive: bool
) -> bool:
    """Whether content comes with intent; a mere explanation in an honest frame is no intent."""
    if rule.asks:
        return True
    matching = asked & rule.with_intents
    if matching == {"explain"} and "legitimate" in around:
        return False
    return bool(matching) and not is_defensive


def _by_name(rules: Iterable[Rule], kind: Kind, shown: set[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for rule in rules:
        if rule.kind is kind and rule.needs <= shown:
            found[rule.name] = max(rule.weight, found.get(rule.name, 0.0))
    return found


def together(parts: list[Finding]) -> Finding:
    """Return what several views of one message say together."""
    violated = _maximum(part.violated for part in parts)
    return Finding(
        violated=violated,
        mentioned=frozenset().union(*(part.mentioned for part in parts)) - set(violated),
        concepts=tuple(dict.fromkeys(name for part in parts for name in part.concepts)),
        features=_maximum(part.features for part in parts),
        contexts=_maximum(part.contexts for part in parts),
        temporal=_maximum(part.temporal for part in parts),
        intents=frozenset().union(*(part.intents for part in parts)),
        has_content=any(part.has_content for part in parts),
        has_harmful_intent=any(part.has_harmful_intent for part in parts),
        rule_ids=tuple(dict.fromkeys(name for part in parts for name in part.rule_ids)),
    )


def _maximum(mappings: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for mapping in mappings:
        for name, weight in mapping.items():
            found[name] = max(weight, found.get(name, weight))
    return found
