"""Untrusted content: tool results, documents, tool descriptions, read on their own evidence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from promptguard.config import PolicyConfig
from promptguard.conversation import ComparableMessage
from promptguard.fil.engine import FrozenInstinct
from promptguard.model.reading import DocumentReading
from promptguard.protocols import Encoder, FilReading
from promptguard.risk.ledger import content_action, risk_of
from promptguard.risk.weights import Weights
from promptguard.text.places import Form, original_spans
from promptguard.text.read import TextViews, read_text
from promptguard.text.windows import windows
from promptguard.turns.input import Content
from promptguard.turns.segments import SEGMENT_CHARS
from promptguard.verdict import Action, ContentFinding, Verdict

# All segments of a content are read, up to this bound.
MAX_SEGMENTS = 200
BARE_CHARS = 300
MAX_HARMLESS = 20_000
# Origins of what describes tools and forms of answers.
DEFINITIONS = ("tools[", "functions[", "response_format", "text.format")
_ORDERS = frozenset({"FIL-05", "FIL-05a", "FIL-05b"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentJudge:
    """Judges untrusted contents. Pure: the same content and task give the same finding."""

    encoder: Encoder | None
    instinct: FrozenInstinct
    weights: Weights
    prior: float
    policy: PolicyConfig

    def judge(self, contents: Sequence[Content], task: str) -> tuple[ContentFinding, ...]:
        """Return one finding per content, in order; each is read whole."""
        return tuple(self._one(index, content, task) for index, content in enumerate(contents))

    def _one(self, index: int, content: Content, task: str) -> ContentFinding:
        worst = ContentFinding(index=index, origin=content.origin, risk=0.0, action=Action.ALLOW)
        is_cut = False
        for number, piece in enumerate(windows(content.text, size=SEGMENT_CHARS)):
            if number >= MAX_SEGMENTS:
                is_cut = True
                break
            found = self._segment(index, content.origin, piece.text, piece.start, task)
            is_cut = is_cut or found.is_truncated
            # The action first: of a definition a segment may be let pass whatever its risk.
            if _gravity(found) > _gravity(worst):
                worst = found
        return replace(worst, is_truncated=is_cut)

    def _segment(
        self, index: int, origin: str, text: str, offset: int, task: str
    ) -> ContentFinding:
        views = read_text(text)
        # A content stands for itself: the session's past violations are the user's.
        rules = self.instinct.assess(views, now=0.0, use_temporal=False)
        reading = self._read(views, task)
        log_odds = self.prior + self._nats(reading, rules, views) + self._bare(views)
        risk = risk_of(log_odds)
        return ContentFinding(
            index=index,
            origin=origin,
            risk=risk,
            action=self._action(origin, risk, rules),
            reason=_reason(reading, rules, views),
            start=offset + (reading.start if reading else 0),
            end=offset + (reading.end if reading else len(text)),
            is_truncated=reading is not None and reading.is_truncated,
        )

    def _action(self, origin: str, risk: float, rules: FilReading) -> Action:
        by = self.policy.definitions_by
        is_found = by == "readers" or (by == "rules" and bool(_ORDERS & set(rules.violated)))
        # Bare, an innocent tool's "Send an email." reads like an order that is not the user's.
        if origin.startswith(DEFINITIONS) and not is_found:
            return Action.ALLOW
        return content_action(self.weights.modes.mode_for(risk), self.policy)

    def _read(self, views: TextViews, task: str) -> DocumentReading | None:
        """Return the reading of the riskiest view; in doubt the thorough reader is asked."""
        if self.encoder is None:
            return None
        # All of them: an order must not hide behind other things that are hidden.
        texts = views.texts
        readings = self.encoder.read_documents(texts, task=task)
        worst = max(range(len(texts)), key=lambda index: readings[index].order)
        nats = self.weights.documents["order"].nats(readings[worst].order)
        if self.weights.doubt.low <= self.prior + nats <= self.weights.doubt.high:
            chosen = self.encoder.read_documents([texts[worst]], task=task, thorough=True)[0]
        else:
            chosen = readings[worst]
        start, end = _place(views, texts[worst], chosen)
        is_cut = any(reading.is_truncated for reading in readings)
        return replace(chosen, start=start, end=end, is_truncated=is_cut)

    def _bare(self, views: TextViews) -> float:
        """Return what a content that is nothing but a few words says taken as a message.

        Where an order is all there is, no document surrounds it that it could stand out from.
        """
        if self.encoder is None or len(views.plain) > BARE_CHARS:
            return 0.0
        readings = self.encoder.read_messages(views.texts)
        worst = max(max(r.manipulative, r.extractive) for r in readings)
        # Only adds: a text that reads harmless as a message keeps its full risk as a document.
        return max(0.0, self.weights.documents["bare"].nats(worst))

    def _nats(self, reading: DocumentReading | None, rules: FilReading, views: TextViews) -> float:
        weights = self.weights.documents
        # What counts is an order that is not the user's, not whether the matter is unpleasant.
        override = rules.harm_score if _ORDERS & set(rules.violated) else 0.0
        nats = weights["rules"].nats(override)
        if views.decoded:
            # Encoded data is ordinary in documents; hiding weighs only where it hid an order.
            nats += weights["hidden"].nats(1.0 if override else 0.0)
        return nats + (weights["order"].nats(reading.order) if reading is not None else 0.0)


class HarmlessContents:
    """Bounded memory of contents beside the messages that were judged harmless.

    Tools and schemas come with every request; each is judged once for a tenant, not in every
    turn. What was found risky is judged again every time, and what may stand in a tool may
    still be an order in a document.
    """

    def __init__(self, limit: int = MAX_HARMLESS) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, bool, str], None] = OrderedDict()
        self._judge: object = None

    def others(
        self, tenant: str, contents: Sequence[ComparableMessage], judge: object
    ) -> tuple[ComparableMessage, ...]:
        """Return the contents that `judge` has still to judge."""
        if judge is not self._judge:  # a reload brought other rules or another policy
            self._known.clear()
            self._judge = judge
        return tuple(item for item in contents if _known_as(tenant, item) not in self._known)

    def learn(
        self, tenant: str, judged: Sequence[ComparableMessage], verdict: Verdict, judge: object
    ) -> None:
        """Remember which of the last contents of a turn were harmless to `judge`."""
        # What one found who was replaced meanwhile says nothing of what the next one finds.
        if judge is not self._judge:
            return
        findings = verdict.content[len(verdict.content) - len(judged) :]
        # A turn that could not be judged has no findings, and nothing is learned from it.
        for item, finding in zip(judged, findings, strict=False):
            if finding.action is Action.ALLOW and not finding.is_truncated:
                self._known[_known_as(tenant, item)] = None
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


def _gravity(finding: ContentFinding) -> tuple[int, float]:
    return finding.action.severity, finding.risk


def _place(views: TextViews, read: str, reading: DocumentReading) -> tuple[int, int]:
    """Return where in the text as written the words lie that a reading of one view points at."""
    if read != views.plain:
        return next((view.start, view.end) for view in views.decoded if view.text == read)
    if read == views.original or reading.start == reading.end:
        return reading.start, reading.end
    (place,) = original_spans(views.original, [(reading.start, reading.end)], form=Form.PLAIN)
    return place


def _known_as(tenant: str, item: ComparableMessage) -> tuple[str, bool, str]:
    return tenant, item.origin.startswith(DEFINITIONS), item.digest


def _reason(reading: DocumentReading | None, rules: FilReading, views: TextViews) -> str:
    parts = []
    if reading is not None:
        parts.append(f"orders that are not the user's {reading.order:.2f}")
    if _ORDERS & set(rules.violated):
        parts.append(f"rules {', '.join(rules.rule_ids[:3])}")
    if views.decoded:
        parts.append(f"decoded from {', '.join(sorted({view.method for view in views.decoded}))}")
    return "; ".join(parts)
