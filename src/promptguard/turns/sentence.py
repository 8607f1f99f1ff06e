"""A verdict in one plain sentence: which turn, what was done, what was found, in which words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptguard.risk.ledger import CONTENT
from promptguard.turns.judge import ALLOWANCE
from promptguard.turns.labels import DIRECT, EXTERNAL_HARM, EXTRACTION, OBFUSCATION
from promptguard.verdict import Action, ContentFinding, Span, Verdict

DONE = {
    Action.ALLOW: "allowed",
    Action.ANNOTATE: "passed on with a remark",
    Action.STEER: "passed on with a warning to the model",
    Action.REVIEW: "sent to a person for review",
    Action.STRIP: "passed on without the poisoned content",
    Action.BLOCK: "blocked",
}
HARMFUL = "asks for something harmful"
OVERRIDING = "tries to override the assistant's instructions"
REVEALING = "tries to get at the assistant's hidden instructions or secrets"
_DIRECTIVES = {
    "FIL-01": "asks for help in harming people",
    "FIL-01a": "asks for help in hurting someone",
    "FIL-01b": "asks for help in killing many people",
    "FIL-01c": "endangers children",
    "FIL-01d": "asks for weapons or explosives",
    "FIL-02": "speaks of self-harm",
    "FIL-02a": "asks for ways to suicide",
    "FIL-02b": "asks for ways of self-injury",
    "FIL-03": "asks for help with terrorism",
    "FIL-04": "asks for help in abusing, deceiving or robbing someone",
    "FIL-05": OVERRIDING,
    "FIL-05a": "tries to talk the assistant out of its limits",
    "FIL-05b": "tries to give the assistant a role without rules",
}
_BY_TAG = {EXTRACTION: REVEALING, DIRECT: OVERRIDING, EXTERNAL_HARM: HARMFUL}
_BY_GROUP = {
    "hazard": HARMFUL,
    "intent": HARMFUL,
    "evasion": OVERRIDING,
    "protected": REVEALING,
}
_BY_SIGNAL = {
    "continuation": "goes on from earlier turns that ask for something harmful",
    "probing": "repeats in other words what was refused before",
    "session": "comes after turns that look like an attack",
    "context": "leads, with what was said before, to something harmful",
}
_UNCLEAR = "reads like an attack"
_MOST_WORDS = 3
_LONGEST_WORDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a sentence is made of; `why` is a clause about the subject, such as `asks for ...`."""

    subject: str
    done: str
    why: str = ""
    words: tuple[str, ...] = ()
    is_disguised: bool = False
    further: str = ""


def sentence(found: Found) -> str:
    """Return the one sentence."""
    start = f"{found.subject} was {found.done}"
    if not found.why:
        return f"{start}{found.further}."
    quoted = ", ".join(f"“{word}”" for word in found.words)
    words = f" ({quoted})" if quoted else ""
    hidden = ", in disguised text" if found.is_disguised else ""
    return f"{start}: it {found.why}{words}{hidden}{found.further}."


def verdict_sentence(verdict: Verdict, text: str | None = None) -> str:
    """Say of a turn what was found and what was done; `text` is the user's, where it is kept."""
    subject, done = f"Turn {verdict.turn}", DONE[verdict.action]
    if verdict.fault and not verdict.evidence:
        # With evidence beside it, the fault is a further judge's and the engine's verdict stands.
        further = f" because it could not be judged: {verdict.fault.rstrip('.')}"
        return sentence(Found(subject=subject, done=done, further=further))
    allowed = next((e.reason for e in verdict.evidence if e.signal == ALLOWANCE), "")
    if allowed and verdict.action is Action.ALLOW:
        further = f" because an operator lets this text pass ({allowed})"
        return sentence(Found(subject=subject, done=done, further=further))
    if verdict.action is Action.ALLOW:
        return f"{subject} was allowed: nothing in it points to an attack."
    if poisoned := _poisoned(verdict):
        return _content_sentence(subject, done, poisoned)
    return sentence(
        Found(
            subject=subject,
            done=done,
            why=_why(verdict),
            words=words_in(text, verdict.spans),
            is_disguised=OBFUSCATION in verdict.tags,
            further=_further(verdict),
        )
    )


def words_in(text: str | None, spans: Sequence[Span]) -> tuple[str, ...]:
    """Return the first few words that mattered, each once; what overlaps is quoted as one."""
    if text is None:
        return ()
    said = dict.fromkeys(" ".join(text[start:end].split()) for start, end in _joined(spans))
    return tuple(word for word in said if 0 < len(word) <= _LONGEST_WORDS)[:_MOST_WORDS]


def _joined(spans: Sequence[Span]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if joined and span.start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], span.end))
        else:
            joined.append((span.start, span.end))
    return joined


def named_in(spans: Iterable[Span]) -> str:
    """Return what the telling words are about, as a clause; empty where there are none."""
    groups = (span.label.partition(".")[0] for span in spans)
    return next((_BY_GROUP[group] for group in groups if group in _BY_GROUP), "")


def _why(verdict: Verdict) -> str:
    # The id of a child directive is longer than its parent's, and the child says more.
    by_directive = _DIRECTIVES.get(max(verdict.directives, key=len, default=""), "")
    by_tag = next((_BY_TAG[tag] for tag in verdict.tags if tag in _BY_TAG), "")
    # One directive is against overriding instructions and against revealing them.
    if by_directive == OVERRIDING and by_tag == REVEALING:
        return by_tag
    if by_directive or by_tag:
        return by_directive or by_tag
    strongest = next((e.signal for e in verdict.top_evidence), "")
    return _BY_SIGNAL.get(strongest) or named_in(verdict.spans) or _UNCLEAR


def _further(verdict: Verdict) -> str:
    if verdict.is_hard:
        return "; a fixed rule forbids it after what came before"
    if verdict.is_locked:
        return "; the session is locked"
    return ""


def _poisoned(verdict: Verdict) -> ContentFinding | None:
    """Return the content that decided, where one did."""
    # A content that is stripped is none that blocks: then the words did, or a lock.
    acted_on = [finding for finding in verdict.content if finding.action is verdict.action]
    # Nothing but a content is stripped; other actions may be the words' as well.
    is_riskier = any(e.signal == CONTENT for e in verdict.evidence)
    if verdict.action is not Action.STRIP and not is_riskier:
        return None
    return max(acted_on, key=lambda finding: finding.risk, default=None)


def _content_sentence(subject: str, done: str, finding: ContentFinding) -> str:
    place = "tool result" if finding.origin == "tool" else finding.origin
    return f"{subject} was {done}: its {place} carries orders that the user did not give."
