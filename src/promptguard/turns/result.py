"""What becomes of a judged turn: the result for the caller, and the session's state after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Self

from promptguard.conversation import content_hash
from promptguard.errors import Blocked
from promptguard.fil.parameters import EscalationWeights
from promptguard.fil.temporal import fold_residue, update_escalations
from promptguard.protocols import TurnContext
from promptguard.risk.ledger import STEERING
from promptguard.signals.intent import Intent, gathering_step
from promptguard.signals.subject import text_terms
from promptguard.signals.wording import Phrase, phrases_in
from promptguard.state import (
    MAX_SEGMENTS,
    RECENT_TURNS,
    Ledger,
    Lock,
    ModeEntry,
    ReplyKind,
    SessionProfile,
    SessionState,
    TopicSummary,
    TurnRecord,
    excerpt_of,
)
from promptguard.vector import cosine, pack_vector, packed_cosine, packed_mean, readable_vector
from promptguard.verdict import Action, Evidence, Mode, Verdict

_TERMS = 8
_SAME_TOPIC = 0.45
_PROBING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What became of a turn.

    `action` is what the policy says; in detect mode it is only reported and `is_enforced` is
    False. `reply` is the model's answer, the refusal, or None where no model is configured.
    `withheld` are the messages that must be replaced before the list that was judged goes on to
    a model, by their index in it.
    """

    state: SessionState
    verdict: Verdict
    is_enforced: bool
    reply: str | None = None
    reply_kind: ReplyKind = ReplyKind.NONE
    withheld: tuple[int, ...] = ()

    @property
    def action(self) -> Action:
        """What the policy says."""
        return self.verdict.action

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What speaks for and against an attack in this turn, in nats."""
        return self.verdict.evidence

    @property
    def is_blocked(self) -> bool:
        """Whether the turn was kept from the model."""
        return self.is_enforced and self.action is Action.BLOCK

    @property
    def notice(self) -> str:
        """What the model is to be told after the application's own words; mostly nothing."""
        is_steered = self.is_enforced and self.action in (Action.STEER, Action.REVIEW)
        return STEERING if is_steered else ""

    @property
    def stripped(self) -> tuple[int, ...]:
        """Which contents must be replaced before the turn goes on, by index."""
        if not self.is_enforced:
            return ()
        return tuple(f.index for f in self.verdict.content if f.action is Action.STRIP)

    def raise_if_blocked(self) -> Self:
        """Return the result; raises Blocked where the turn must not go on."""
        if self.is_blocked:
            raise Blocked("The turn was blocked; `verdict` says why.", self.verdict)
        return self


def withheld_digests(contents: Sequence[str], verdict: Verdict) -> frozenset[str]:
    """Return the digests of the contents of a turn that no model may see, now or later."""
    return frozenset(content_hash(contents[f.index]) for f in verdict.content if f.is_withheld)


def remember(
    ctx: TurnContext, verdict: Verdict, ledger: Ledger, escalation: EscalationWeights
) -> SessionState:
    """Return the session's state once `verdict` was reached on `ctx`."""
    before = ctx.state
    record = record_of(ctx, verdict)
    recent = (*before.recent, record)
    residues = before.residues
    for leaving in recent[:-RECENT_TURNS]:
        # What leaves the window goes on counting at the decay floor: nothing is wholly forgotten.
        residues = fold_residue(residues, leaving)
    recent = recent[-RECENT_TURNS:]
    return replace(
        before,
        created=before.created or ctx.now,
        updated=max(before.updated, ctx.now),
        accumulated_risk=verdict.accumulated_risk,
        mode=verdict.mode,
        ledger=ledger,
        recent=recent,
        segments=segments_after(before, record),
        profile=profile_after(ctx, verdict, record),
        residues=residues,
        escalations=update_escalations(
            before.escalations, ctx.fil, escalation, turn=ctx.turn, now=ctx.now
        ),
        entered=entered_after(before, verdict),
        # A turn without words has no scores; the posterior then stays as it was.
        intent=_intent_of(verdict) or before.intent,
        history_rewrites=before.history_rewrites + int(ctx.history_rewritten),
    )


def with_verdict(
    before: SessionState,
    after: SessionState,
    verdict: Verdict,
    ledger: Ledger,
    lock: Lock | None,
) -> SessionState:
    """Return a state whose last turn got a changed verdict, by a second opinion.

    What follows from the verdict is reckoned from the session `before` the turn, so that nothing
    of the first one stays.
    """
    last = replace(
        after.recent[-1],
        turn_risk=verdict.turn_risk,
        mode=verdict.mode,
        action=verdict.action,
    )
    return replace(
        after,
        accumulated_risk=verdict.accumulated_risk,
        mode=verdict.mode,
        ledger=ledger,
        lock=lock,
        recent=(*after.recent[:-1], last),
        profile=counted(after.profile, before, verdict),
        entered=entered_after(before, verdict),
    )


def _intent_of(verdict: Verdict) -> tuple[float, ...]:
    """Return the posterior that the intent signal left in its parts, where it is in use."""
    found = next((score.parts for score in verdict.scores if score.name == "intent"), {})
    return tuple(found[kind.value] for kind in Intent) if found else ()


def record_of(ctx: TurnContext, verdict: Verdict) -> TurnRecord:
    """Return what is kept of the turn itself."""
    return TurnRecord(
        turn=ctx.turn,
        excerpt=excerpt_of(ctx.text),
        content_hash=content_hash(ctx.text),
        timestamp=ctx.now,
        message_risk=verdict.message_risk,
        turn_risk=verdict.turn_risk,
        mode=verdict.mode,
        action=verdict.action,
        harm_score=ctx.fil.harm_score,
        directives=ctx.fil.violated,
        concepts=ctx.fil.concepts,
        is_flagged=ctx.fil.is_blocking,
        is_hard=verdict.is_hard,
        key_terms=text_terms(ctx.views.plain),
        gathering_step=gathering_step(ctx.views.folded),
        is_follow_up=ctx.subjects.is_follow_up,
        embedding="" if ctx.embedding is None else pack_vector(ctx.embedding),
    )


def entered_after(before: SessionState, verdict: Verdict) -> tuple[ModeEntry, ...]:
    """Return the first turn of each mode, with the ones just entered."""
    known = {entry.mode for entry in before.entered}
    new = (
        ModeEntry(turn=verdict.turn, mode=mode)
        for mode in Mode
        if Mode.SAFE < mode <= verdict.mode and mode not in known
    )
    return (*before.entered, *new)


def segments_after(before: SessionState, record: TurnRecord) -> tuple[TopicSummary, ...]:
    """Return the topic segments with this turn in them.

    A turn on the subject of the newest segment joins it; another subject begins a new one. A turn
    without a subject of its own ("go on") belongs to what it follows.
    """
    alone = summary_of(record)
    if not before.segments:
        return (alone,)
    newest = before.segments[-1]
    if not record.key_terms or _likeness(alone, newest) >= _SAME_TOPIC:
        return (*before.segments[:-1], merged(newest, alone))
    segments = (*before.segments, alone)
    if len(segments) > MAX_SEGMENTS:
        # The oldest are joined: the state stays bounded, and the latest topics stay exact.
        segments = (merged(segments[0], segments[1]), *segments[2:])
    return segments


def _likeness(left: TopicSummary, right: TopicSummary) -> float:
    """Return how nearly two segments are about one thing; shared key terms decide by themselves."""
    if set(left.key_terms) & set(right.key_terms):
        return 1.0
    return packed_cosine(left.centroid, right.centroid)


def summary_of(turn: TurnRecord) -> TopicSummary:
    """Return one turn as a segment of its own."""
    return TopicSummary(
        first_turn=turn.turn,
        last_turn=turn.turn,
        key_terms=turn.key_terms,
        centroid=turn.embedding,
        mean_risk=turn.message_risk,
        peak_risk=turn.message_risk,
    )


def merged(left: TopicSummary, right: TopicSummary) -> TopicSummary:
    """Return two neighbouring segments as one."""
    spans = [part.last_turn - part.first_turn + 1 for part in (left, right)]
    # Terms of both sides alternate, so that the bound does not cut the newer ones off.
    pairs = zip_longest(left.key_terms, right.key_terms)
    terms = dict.fromkeys(term for pair in pairs for term in pair if term is not None)
    return TopicSummary(
        first_turn=left.first_turn,
        last_turn=right.last_turn,
        key_terms=tuple(terms)[:_TERMS],
        centroid=packed_mean((left.centroid, right.centroid), spans),
        mean_risk=(left.mean_risk * spans[0] + right.mean_risk * spans[1]) / sum(spans),
        peak_risk=max(left.peak_risk, right.peak_risk),
    )


def profile_after(ctx: TurnContext, verdict: Verdict, record: TurnRecord) -> SessionProfile:
    """Return the session's counts after the turn."""
    old = ctx.state.profile
    scores = {score.name: score.score for score in verdict.scores}
    phrases = phrases_in(ctx.views.folded)
    profile = replace(
        old,
        turns=old.turns + 1,
        flagged=old.flagged + int(record.is_flagged),
        probing=old.probing + int(scores.get("probing", 0.0) >= _PROBING),
        hypotheticals=old.hypotheticals + int(Phrase.HYPOTHETICAL in phrases),
        meta_instructions=old.meta_instructions + int(Phrase.META_INSTRUCTION in phrases),
        topics_revisited=old.topics_revisited + int(is_return(ctx)),
        peak_message_risk=max(old.peak_message_risk, verdict.message_risk),
    )
    return with_gap(counted(profile, ctx.state, verdict), ctx)


def counted(profile: SessionProfile, before: SessionState, verdict: Verdict) -> SessionProfile:
    """Return the profile with what a verdict on the turn after `before` adds to the counts."""
    old = before.profile
    return replace(
        profile,
        blocked=old.blocked + int(verdict.action is Action.BLOCK),
        stripped=old.stripped + int(verdict.action is Action.STRIP),
        mode_changes=old.mode_changes + int(verdict.mode != before.mode),
        peak_risk=max(old.peak_risk, verdict.turn_risk),
    )


def with_gap(profile: SessionProfile, ctx: TurnContext) -> SessionProfile:
    """Return the profile with the pause before this turn in its running statistics."""
    if not ctx.state.recent:
        return profile
    gap = max(0.0, ctx.now - ctx.state.recent[-1].timestamp)
    count = profile.gap_count + 1
    # Welford's method: mean and variance in constant memory, however long the session.
    off = gap - profile.gap_mean_s
    mean = profile.gap_mean_s + off / count
    return replace(
        profile,
        gap_count=count,
        gap_mean_s=mean,
        gap_m2_s=profile.gap_m2_s + off * (gap - mean),
    )


def is_return(ctx: TurnContext) -> bool:
    """Say whether the turn goes back to an earlier topic, away from the latest one."""
    if ctx.embedding is None or len(ctx.state.segments) < 2:
        return False
    near = [
        cosine(ctx.embedding, readable_vector(segment.centroid)) for segment in ctx.state.segments
    ]
    return max(near[:-1]) >= _SAME_TOPIC > near[-1]
