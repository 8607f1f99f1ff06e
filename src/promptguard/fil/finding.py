"""What one message says by itself: contents, intents, frames, and what they violate together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from promptguard.fil.matcher import Matcher
from promptguard.fil.reader import Reader
from promptguard.fil.rules import Kind
from promptguard.patterns import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome for one text or several views of it. Mappings go from name to weight.

    `violated` are directives whose content occurs with intent, `mentioned` those only touched.
    `contexts` holds the frames around the contents, or of the whole text where it has none.
    `temporal` patterns count by themselves; `latent` has those that count after a risky past too.
    """

    violated: Mapping[str, float] = field(default_factory=dict)
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
    contexts: dict[str, float] = field(default_factory=dict)
    intents: set[str] = field(default_factory=set)
    kept: list[Entry] = field(default_factory=list)
    has_harmful_intent: bool = False


def find(matcher: Matcher, scan: str) -> Finding:
    """Return what the canonical text `scan` says by itself."""
    reader = Reader(matcher, scan)
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
    if not any(rule.kind in (Kind.CONTENT, Kind.FEATURE) for rule in rules):
        tally.kept += rules
        return
    asked = reader.intents_at(index)
    around = reader.contexts_at(index)
    is_defensive = reader.is_defensive(index)
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
