"""The Frozen Instinct Layer as a whole: one message and its past in, one reading out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

from promptguard.config import TemporalSettings
from promptguard.conversation import Role
from promptguard.fil.directives import Directive
from promptguard.fil.finding import Finding, Matcher, canonical, find, together
from promptguard.fil.parameters import FilParameters, read_parameters, with_temporal
from promptguard.fil.rules import rule_packs
from promptguard.fil.temporal import Counterfactual, is_risky, past_of
from promptguard.patterns import Entry, Pack
from promptguard.protocols import FilReading
from promptguard.state import ConversationHistory, ConversationMessage
from promptguard.text.read import TextViews
from promptguard.text.vocabulary import key_terms

NO_HISTORY = ConversationHistory(messages=(), residues=(), escalation_events=())
_DIRECTIVES = frozenset(Directive)
_ACTING = frozenset({"method", "request", "plan"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One message before it is judged.

    `chars` and `terms` are its length and its own topic words, counted where it may continue an
    earlier message.
    """

    finding: Finding
    chars: int = 0
    terms: int = 0


class FrozenInstinct:
    """Rules and numbers, read once; `assess` is pure and may be called from many threads."""

    def __init__(self, packs: Iterable[Pack], parameters: FilParameters) -> None:
        self.packs = tuple(packs)
        self.parameters = parameters
        self._matcher = Matcher(self.packs)

    @classmethod
    def load(
        cls,
        languages: Iterable[str] | None = None,
        extra_paths: Iterable[str | Path] = (),
        parameters: str | Path | None = None,
        settings: TemporalSettings | None = None,
    ) -> FrozenInstinct:
        """Build the layer from the bundled rules of `languages` (None: all) and further paths.

        A path is a file of rules or a language folder, which is added with all its sections.
        `settings` replace the adaptive ones among the numbers of `parameters`.
        """
        numbers = with_temporal(read_parameters(parameters), settings or TemporalSettings())
        return cls(rule_packs(languages, extra_paths), numbers)

    def with_settings(self, settings: TemporalSettings) -> FrozenInstinct:
        """Return a layer with the same rules, compiled once, and other adaptive numbers."""
        other = copy(self)
        other.parameters = with_temporal(self.parameters, settings)
        return other

    @property
    def rules(self) -> tuple[Entry, ...]:
        """Every rule in use."""
        return tuple(rule for pack in self.packs for rule in pack.entries)

    def assess(
        self,
        views: TextViews,
        history: ConversationHistory = NO_HISTORY,
        *,
        now: float,
        persona: str = "strict",
        use_temporal: bool = True,
    ) -> FilReading:
        """Judge the message in `views`; without `use_temporal`, as if nothing came before it."""
        past = history if use_temporal else NO_HISTORY
        read = self.read(views)
        return self.judge(read, past, now=now, persona=persona, use_temporal=use_temporal)

    def read(self, views: TextViews) -> Reading:
        """Return what the message says by itself, whatever the numbers and the past."""
        finding = self._finding(views)
        if "follow_up" not in finding.temporal:
            return Reading(finding=finding)
        topic = key_terms(self._matcher.without_follow_up(canonical(views.plain)))
        return Reading(finding=finding, chars=len(views.plain), terms=len(topic))

    def judge(
        self,
        reading: Reading,
        past: ConversationHistory,
        *,
        now: float,
        persona: str = "strict",
        use_temporal: bool = True,
    ) -> FilReading:
        """Judge a message that was read before, given its past."""
        finding = reading.finding
        continued = self._continued(reading, past) if use_temporal else ()
        violated = tuple(sorted({*finding.violated, *continued}))
        before = past_of(violated, past, self.parameters, now=now)
        amps, shapes, judged = before.amplifications, before.shapes, before.judged
        patterns = self._patterns(finding, past, now=now) if use_temporal else {}
        raw = self._base(finding, violated, amps, persona)
        # After the frames' multiplier: an honest frame does not lessen what the past adds.
        raw += before.inertia + judged.severity + sum(patterns.values())
        if shapes:
            raw += self.parameters.escalation.penalty
        is_hard = self._is_hard(violated, amps, judged)
        return FilReading(
            # Clamped before it is stored: past harm enters later sums and must not feed on itself.
            harm_score=1.0 if is_hard else min(1.0, raw),
            raw_score=raw,
            violated=violated,
            attacks=finding.attacks.union(Directive(name).attack for name in continued),
            mentioned=tuple(sorted(finding.mentioned - set(violated))),
            concepts=finding.concepts,
            rule_ids=finding.rule_ids,
            features=(*finding.features, *(finding.latent if use_temporal else ())),
            escalation=shapes,
            counterfactual_severity=judged.severity,
            is_hard=is_hard,
            is_blocking=is_hard or raw >= self.parameters.base.block_at,
            reason=_reason(finding, violated, continued, shapes, judged, tuple(patterns)),
        )

    def _finding(self, views: TextViews) -> Finding:
        finding = find(self._matcher, views.plain)
        hidden = [find(self._matcher, view.text) for view in views.decoded]
        merged = together([finding, *hidden]) if hidden else finding
        # Harmless encoded text, such as a token, evades nothing.
        if not any(part.has_content for part in hidden):
            return merged
        return replace(merged, features={**merged.features, "translation_evasion": 1.0})

    def _base(
        self, finding: Finding, violated: tuple[str, ...], amps: Mapping[str, float], persona: str
    ) -> float:
        weights = self.parameters.base
        score = sum(
            self.parameters.feature[name] * weight for name, weight in finding.features.items()
        )
        if finding.has_harmful_intent and "critical" in finding.features:
            score += weights.intent_critical
        if finding.has_harmful_intent and "hypothetical" in finding.features:
            score += weights.hypothetical_intent
        if violated:
            score += weights.violation * max(
                self.parameters.severity[directive]
                * self.parameters.persona_weight(persona, directive)
                * amps[directive]
                # A directive that is only continued matched no rule here and counts whole.
                * finding.violated.get(directive, 1.0)
                for directive in violated
            )
        if finding.has_content and "pseudo_legitimate" in finding.contexts:
            score += weights.pseudo_legitimate_content
        return score * min(finding.contexts.values(), default=1.0)

    def _patterns(
        self, finding: Finding, past: ConversationHistory, *, now: float
    ) -> dict[str, float]:
        """Return what the temporal patterns add: those that need a risky past only after one."""
        has_more = finding.latent.keys() - finding.temporal.keys()
        is_after_risk = has_more and is_risky(past, self.parameters, now=now)
        shown = finding.latent if is_after_risk else finding.temporal
        weights = self.parameters.pattern
        return {name: weights[name] * weight for name, weight in shown.items() if name in weights}

    def _continued(self, reading: Reading, past: ConversationHistory) -> tuple[str, ...]:
        """Return the directives of the earlier turn that this message goes on with."""
        finding = reading.finding
        if finding.violated:
            return ()
        users = [message for message in past.messages if message.role is Role.USER]
        limits = self.parameters.follow_up
        is_brief = reading.chars <= limits.max_chars and reading.terms <= limits.max_terms
        if "follow_up" in finding.temporal and is_brief:
            reach = len(users) if "revisit" in finding.latent else limits.reach_turns
            # A slice from -0 on would be the whole list.
            return _last_violated(users[-reach:] if reach else [])
        honest = {"defensive", "legitimate"} & set(finding.contexts)
        if finding.concepts and finding.intents & _ACTING and not honest:
            family = {name.split(".")[0] for name in finding.concepts}
            near = users[-limits.reach_turns :]
            same = [m for m in near if family & {name.split(".")[0] for name in m.concepts}]
            return _last_violated(same)
        return ()

    def _is_hard(
        self, violated: tuple[str, ...], amps: Mapping[str, float], judged: Counterfactual
    ) -> bool:
        return (
            judged.severity > 0.0
            or not self.parameters.hard_directives.isdisjoint(violated)
            or any(amp >= self.parameters.inertia.hard_at for amp in amps.values())
        )


def _last_violated(users: list[ConversationMessage]) -> tuple[str, ...]:
    for message in reversed(users):
        # A stored session may name a directive that this version does not know.
        if known := [name for name in message.fil_violations if name in _DIRECTIVES]:
            return tuple(sorted(known))
    return ()


def _reason(
    finding: Finding,
    violated: tuple[str, ...],
    continued: tuple[str, ...],
    shapes: tuple[str, ...],
    judged: Counterfactual,
    patterns: tuple[str, ...],
) -> str:
    parts = []
    if continued:
        parts.append(f"continues an earlier turn that violated {', '.join(continued)}")
    elif violated:
        parts.append(f"violates {', '.join(violated)}")
    elif finding.mentioned:
        parts.append(f"mentions {', '.join(sorted(finding.mentioned))}")
    if finding.features:
        parts.append(f"shows {', '.join(finding.features)}")
    if finding.contexts and (finding.has_content or finding.features):
        parts.append(f"in a {', '.join(finding.contexts)} frame")
    if patterns:
        parts.append(f"speaks of {', '.join(patterns)}")
    if shapes:
        parts.append(f"escalating ({', '.join(shapes)})")
    if judged.reason:
        parts.append(judged.reason)
    return "; ".join(parts)
