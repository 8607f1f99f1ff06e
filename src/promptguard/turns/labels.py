"""What a verdict names: the tags others know a finding by, and the words that mattered.

Tags are those of OWASP's list for LLM applications and of MITRE ATLAS. They follow from what was
found and only where something was: an innocent turn has none. At most three, the most telling
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from promptguard.fil.directives import Attack
from promptguard.protocols import TurnContext
from promptguard.text.places import original_spans
from promptguard.verdict import Action, ContentFinding, Span

MAX_TAGS = 3
MAX_SPANS = 12
_TELLING = ("hazard.", "intent.", "evasion.", "protected.")
WORTH_SHOWING = 0.2
_LIKELY = 0.5

INJECTION, LEAKAGE = "LLM01", "LLM07"
EXTERNAL_HARM = "AML.T0048"
DIRECT, INDIRECT = "AML.T0051.000", "AML.T0051.001"
JAILBREAK, EXTRACTION, DATA_LEAKAGE = "AML.T0054", "AML.T0056", "AML.T0057"
OBFUSCATION = "AML.T0068"
REWRITTEN_HISTORY = "AML.T0092"

# What is wanted comes before the means to it.
_TAGS = {
    Attack.EXTRACTION: (LEAKAGE, EXTRACTION),
    Attack.OVERRIDE: (INJECTION, DIRECT),
    Attack.JAILBREAK: (INJECTION, JAILBREAK),
    Attack.HARM: (EXTERNAL_HARM,),
}
_BY_CONCEPT = {
    "protected.system_prompt": Attack.EXTRACTION,
    "protected.hidden_rules": Attack.EXTRACTION,
    "protected.secret_key_password": Attack.EXTRACTION,
    "protected.verbatim_repeat": Attack.EXTRACTION,
    "evasion.ignore_instructions": Attack.OVERRIDE,
    "evasion.new_persona": Attack.JAILBREAK,
    "evasion.no_restrictions": Attack.JAILBREAK,
    "evasion.opposite_mode": Attack.JAILBREAK,
    "evasion.developer_mode": Attack.JAILBREAK,
    "evasion.stay_in_character": Attack.JAILBREAK,
}


def labels_of(
    ctx: TurnContext, own_risk: float, findings: Sequence[ContentFinding]
) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """Return the tags and the telling words of a turn; `own_risk` is that of the user's words."""
    return tags_for(ctx, own_risk, findings), spans_of(ctx)


def tags_for(
    ctx: TurnContext, own_risk: float, findings: Sequence[ContentFinding]
) -> tuple[str, ...]:
    """Return the tags that fit what was found in a turn."""
    return tuple(dict.fromkeys(_found(ctx, own_risk, findings)))[:MAX_TAGS]


def reply_tags(reason: str, leak: str) -> tuple[str, ...]:
    """Return the tags of an answer; `reason` and `leak` are empty where there is none."""
    if leak:
        return LEAKAGE, DATA_LEAKAGE
    return (EXTERNAL_HARM,) if reason else ()


def _found(ctx: TurnContext, own_risk: float, findings: Sequence[ContentFinding]) -> Iterator[str]:
    # By the action and not the risk: a definition that no rule finds poisoned is let pass.
    if any(finding.action is not Action.ALLOW for finding in findings):
        yield from (INJECTION, INDIRECT)
    if ctx.history_rewritten:
        yield REWRITTEN_HISTORY
    if own_risk < _LIKELY:
        return
    # Risk without anything in the message itself is that of the talk it continues.
    attacks = _attacks(ctx) or {Attack.JAILBREAK}
    first, *others = (tags for attack, tags in _TAGS.items() if attack in attacks)
    yield from first
    if ctx.views.decoded or ctx.views.disguises:
        # Before the other attacks, or the bound on tags would cut it off.
        yield OBFUSCATION
    for tags in others:
        yield from tags


def _attacks(ctx: TurnContext) -> set[str]:
    """Return what the message does: by the rules, and where they find no way round the
    instructions, by the readers."""
    found = set(ctx.fil.attacks)
    if ctx.reading is None or found - {Attack.HARM}:
        return found
    kinds = {
        Attack.EXTRACTION: ctx.reading.extractive,
        Attack.OVERRIDE: ctx.reading.manipulative,
        Attack.JAILBREAK: ctx.reading.manipulative,
        Attack.HARM: ctx.reading.harmful,
    }
    likely = {attack: p for attack, p in kinds.items() if p >= _LIKELY}
    # The readers give most attacks a little of every kind; what the words name tells them apart.
    named = {attack for name, attack in _BY_CONCEPT.items() if name in ctx.concepts}
    found |= named.intersection(likely)
    strongest = max(likely, key=lambda attack: likely[attack], default=None)
    if strongest is not None and (not found or strongest is Attack.HARM):
        found.add(strongest)
    return found


def spans_of(ctx: TurnContext) -> tuple[Span, ...]:
    """Return the characters of the original text that name something telling, in order."""
    if ctx.message_risk < WORTH_SHOWING and not ctx.fil.violated:
        return ()
    return telling_spans(ctx.text, ctx.concepts)


def telling_spans(text: str, concepts: Mapping[str, Sequence[tuple[int, int]]]) -> tuple[Span, ...]:
    """Return the characters of a text that name telling concepts, given by place in its folded
    form."""
    named = [
        (place, name)
        for name, places in concepts.items()
        if name.startswith(_TELLING)
        for place in places
    ]
    named.sort()
    places = original_spans(text, [place for place, _ in named[:MAX_SPANS]])
    return tuple(
        Span(start=start, end=end, label=name)
        for (start, end), (_, name) in zip(places, named, strict=False)
    )
