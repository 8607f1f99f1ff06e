"""What a turn is about, and how that goes with the turns before it and the application's rules.

Signals `system_rules`, `continuation`, `probing` and `coherence`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from promptguard.counts import counted
from promptguard.patterns import on_change
from promptguard.protocols import FilReading, Subject, Subjects, TurnContext
from promptguard.signals import SIGNALS, clipped, noisy_or, read_tuning
from promptguard.signals.wording import without_frames
from promptguard.state import ReplyKind, SessionState, TopicSummary, TurnRecord
from promptguard.text.read import TextViews
from promptguard.text.vocabulary import key_terms
from promptguard.vector import Vector, readable_vector
from promptguard.verdict import Action, SignalScore

STEM, STEMMED_FROM = 5, 7
_NOWHERE: Vector = np.zeros(0, dtype=np.float32)
# So many terms in common are as good as all of a short question's.
_ENOUGH = 3
_LIKELY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubjectTuning:
    same_cosine: float
    follow_up_chars: int


def subjects_of(
    state: SessionState, views: TextViews, fil: FilReading, embedding: Vector | None
) -> Subjects:
    """Return what a turn and the remembered ones before it are about."""
    terms = subject_terms(text_terms(views.plain))
    vector = _NOWHERE if embedding is None else _unit(embedding)
    says_so = "follow_up" in fil.features
    return Subjects(
        now=Subject(terms=terms, vector=vector),
        past=tuple(
            Subject(terms=subject_terms(turn.key_terms), vector=vector_of(turn.embedding))
            for turn in state.recent
        ),
        # A long message has matter of its own, even where it also asks to go on.
        is_follow_up=says_so and len(views.plain) <= _subject_tuning().follow_up_chars,
    )


def is_same_subject(left: Subject, right: Subject) -> bool:
    """Return whether two turns share a key term or lie close together."""
    if left.terms & right.terms:
        return True
    return similarity(left.vector, right.vector) >= _subject_tuning().same_cosine


def likeness(then: Subject, now: Subject) -> tuple[float, float]:
    """Return the cosine and the shared terms of two subjects, each in [0,1]."""
    return similarity(then.vector, now.vector), overlap(then.terms, now.terms)


def overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Dice coefficient of two sets of terms; 0 where one is empty."""
    if not left or not right:
        return 0.0
    return 2 * len(left & right) / (len(left) + len(right))


def similarity(left: Vector, right: Vector) -> float:
    """Return the cosine of unit vectors within [0,1]; 0 where one is missing or of another size."""
    if not left.size or left.shape != right.shape:
        return 0.0
    return min(1.0, max(0.0, float(left @ right)))


def mean_vector(vectors: Sequence[Vector]) -> Vector:
    """Return the direction of the mean of the vectors that have the size of the last."""
    known = [vector for vector in vectors if vector.size]
    if not known:
        return _NOWHERE
    # A stored session may hold vectors of an earlier model beside those of the present one.
    same = [vector for vector in known if vector.size == known[-1].size]
    total = same[0].copy()
    for vector in same[1:]:
        total += vector
    return _unit(total)


@lru_cache(maxsize=4096)
def vector_of(packed: str) -> Vector:
    """Return a stored embedding, read-only; an unreadable one is as good as none."""
    vector = readable_vector(packed)
    # The cache gives the same array to every caller.
    vector.flags.writeable = False
    return vector


@lru_cache(maxsize=4)
def text_terms(text: str) -> tuple[str, ...]:
    """Return `key_terms`, remembered for the few signals that ask within one turn."""
    return key_terms(text)


@lru_cache(maxsize=4096)
def subject_terms(terms: tuple[str, ...]) -> frozenset[str]:
    """Return the terms that name a subject, long words by their stem (chemistry, chemicals)."""
    return frozenset(map(_stem, without_frames(terms)))


def _stem(term: str) -> str:
    return term[:STEM] if len(term) >= STEMMED_FROM and term.isalpha() else term


def _unit(vector: Vector) -> Vector:
    """Return `vector` at length one; one without direction is as good as none."""
    length = math.sqrt(float(vector @ vector)) if vector.ndim == 1 else 0.0
    if not 0.0 < length < math.inf:
        return _NOWHERE
    unit: Vector = vector / np.float32(length)
    return unit


@cache
def _subject_tuning() -> _SubjectTuning:
    return read_tuning("subject", _SubjectTuning)


@SIGNALS.register("system_rules")
def system_rules(ctx: TurnContext) -> SignalScore:
    """Return how much of the turn's subject is named in the rules of the system prompt.

    The readers see the system prompt too; this holds the part that words alone can tell.
    """
    rules = _rule_terms(ctx.rules)
    shared = ctx.subjects.now.terms & rules
    if not shared:
        return SignalScore(name="system_rules", score=0.0)
    score = min(1.0, len(shared) / _ENOUGH)
    reason = f"{counted(len(shared), 'term')} of what the prompt protects"
    return SignalScore(name="system_rules", score=score, reason=reason)


@lru_cache(maxsize=256)
def _rule_terms(rules: str) -> frozenset[str]:
    return subject_terms(key_terms(rules)) if rules else frozenset()


# Stop words and frames of a language that is added later hold for texts met before, too.
for _remembered in (text_terms, subject_terms, _rule_terms):
    on_change(_remembered.cache_clear)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ContinuationTuning:
    near_cosine: float
    near_overlap: float
    kept_per_turn: float
    operational: float


@SIGNALS.register("continuation")
def continuation(ctx: TurnContext) -> SignalScore:
    """Return the risk of the earlier turn that this one continues, by how nearly it does.

    A turn that only asks to go on ("and the next step?") continues what it follows, back to the
    last turn that names a subject; any other continues the turns it is close to in meaning or
    words. A reply that gave operational detail makes its turn weigh more, a refusal does not make
    it weigh less.
    """
    best, which = 0.0, 0
    chained = _chained(ctx) if ctx.subjects.is_follow_up else frozenset[int]()
    before = zip(reversed(ctx.state.recent), reversed(ctx.subjects.past), strict=True)
    for age, (turn, then) in enumerate(before):
        near = _relevance(then, ctx.subjects.now)
        relevance = max(near, 1.0 if turn.turn in chained else 0.0)
        risk = turn.turn_risk
        if turn.reply is not None and turn.reply.kind is ReplyKind.OPERATIONAL:
            risk = clipped(risk * (1.0 + _continuation_tuning().operational))
        value = relevance * risk * _continuation_tuning().kept_per_turn ** age
        if value > best:
            best, which = value, turn.turn
    return SignalScore(
        name="continuation",
        score=best,
        reason=f"goes on from turn {which}",
        parts={"turn": float(which)},
    )


def _chained(ctx: TurnContext) -> frozenset[int]:
    """Return the turns a bare follow-up goes on from: back to the last that names a subject."""
    chain = []
    for turn, then in zip(reversed(ctx.state.recent), reversed(ctx.subjects.past), strict=True):
        chain.append(turn.turn)
        if then.terms and not turn.is_follow_up:
            break
    return frozenset(chain)


def _relevance(then: Subject, now: Subject) -> float:
    tuning = _continuation_tuning()
    cosine, shared = likeness(then, now)
    return max(_above(cosine, tuning.near_cosine), _above(shared, tuning.near_overlap))


def _above(value: float, threshold: float) -> float:
    """Return 0 up to the threshold, rising to 1 at identity."""
    return max(0.0, (value - threshold) / (1.0 - threshold))


@cache
def _continuation_tuning() -> _ContinuationTuning:
    return read_tuning("continuation", _ContinuationTuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProbingTuning:
    near_cosine: float
    near_overlap: float
    first_weight: float
    further_weight: float
    disguise_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    turn: int
    likeness: float
    is_decoded: bool


@SIGNALS.register("probing")
def probing(ctx: TurnContext) -> SignalScore:
    """Return how nearly this turn repeats ones that were refused, blocked or flagged."""
    attempts = _attempts(ctx)
    if not attempts:
        return SignalScore(name="probing", score=0.0)
    tuning = _probing_tuning()
    closest = max(attempts, key=lambda attempt: (attempt.likeness, attempt.turn))
    # Each further attempt takes its share of the doubt that is left, so that no number exceeds 1.
    tries = 1.0 - (1.0 - tuning.first_weight) * (1.0 - tuning.further_weight) ** (len(attempts) - 1)
    is_disguised = closest.is_decoded or bool(ctx.views.disguises)
    score = closest.likeness * tries
    if is_disguised:
        score = noisy_or((score, score * tuning.disguise_weight))
    how = "again in disguise" if is_disguised else "again"
    reason = f"turn {closest.turn} {how}, {counted(len(attempts), 'earlier attempt')}"
    return SignalScore(
        name="probing", score=score, reason=reason, parts={"attempts": float(len(attempts))}
    )


def is_turned_down(turn: TurnRecord) -> bool:
    """Return whether a turn was refused by the assistant, or blocked or flagged by the guard.

    One that was blocked for the session's lock alone was not turned down for what it asked; the
    refusal recorded with it is the guard's own.
    """
    if turn.action is Action.BLOCK:
        return turn.turn_risk >= _LIKELY or turn.is_flagged
    is_refused = turn.reply is not None and turn.reply.kind is ReplyKind.REFUSED
    return is_refused or turn.is_flagged


def _attempts(ctx: TurnContext) -> list[_Attempt]:
    """Return the earlier turned-down requests that the current one resembles."""
    before = zip(ctx.state.recent, ctx.subjects.past, strict=True)
    earlier = [(turn, then) for turn, then in before if is_turned_down(turn)]
    if not earlier:
        return []
    # Only the text as written has a vector; what it hides is compared by its terms.
    hidden = [subject_terms(key_terms(view.text)) for view in ctx.views.decoded]
    found = []
    for turn, then in earlier:
        cosine, shared = likeness(then, ctx.subjects.now)
        open_likeness = max(
            _near(cosine, _probing_tuning().near_cosine),
            _near(shared, _probing_tuning().near_overlap),
        )
        hidden_likeness = max(
            (_near(overlap(then.terms, terms), _probing_tuning().near_overlap) for terms in hidden),
            default=0.0,
        )
        closest = max(open_likeness, hidden_likeness)
        if closest > 0.0:
            is_decoded = hidden_likeness > open_likeness
            found.append(_Attempt(turn=turn.turn, likeness=closest, is_decoded=is_decoded))
    return found


def _near(value: float, threshold: float) -> float:
    """Return 0 below the threshold, then from a half at it to 1 at identity."""
    if value < threshold:
        return 0.0
    return clipped(0.5 + 0.5 * (value - threshold) / (1.0 - threshold))


@cache
def _probing_tuning() -> _ProbingTuning:
    return read_tuning("probing", _ProbingTuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CoherenceTuning:
    window: int
    risky: float
    return_cosine: float


@SIGNALS.register("coherence")
def coherence(ctx: TurnContext) -> SignalScore:
    """Return how far a risky turn leaves the subject of the last five.

    The score is 1 - cosine(current, their mean), and 0 for a turn without risk. A turn that goes
    back to an earlier segment is no pivot: its distance is measured from there.
    """
    tuning = _coherence_tuning()
    recent = ctx.state.recent[-tuning.window :]
    mean = mean_vector([then.vector for then in ctx.subjects.past[-tuning.window :]])
    vector = ctx.subjects.now.vector
    if not mean.size or mean.size != vector.size:
        return SignalScore(name="coherence", score=0.0)
    distance = 1.0 - similarity(vector, mean)
    if ctx.message_risk < tuning.risky:
        return SignalScore(name="coherence", score=0.0, parts={"distance": distance})
    segment, closeness = _nearest_segment(ctx, recent[0].turn, vector)
    # To be a return, the segment must also be nearer than the recent turns are.
    if segment is not None and closeness >= max(tuning.return_cosine, 1.0 - distance):
        return SignalScore(
            name="coherence",
            score=1.0 - closeness,
            reason=f"risky return to {_turns_of(segment)} (peak risk {segment.peak_risk:.2f})",
            parts={"distance": distance, "return_cosine": closeness},
        )
    reason = f"risky pivot, distance {distance:.2f} from {counted(len(recent), 'recent turn')}"
    return SignalScore(
        name="coherence", score=distance, reason=reason, parts={"distance": distance}
    )


def _turns_of(segment: TopicSummary) -> str:
    first, last = segment.first_turn, segment.last_turn
    return f"turn {first}" if first == last else f"turns {first}-{last}"


def _nearest_segment(
    ctx: TurnContext, before_turn: int, vector: Vector
) -> tuple[TopicSummary | None, float]:
    """Return the closest segment that ended before the window, and its cosine."""
    nearest: TopicSummary | None = None
    closest = 0.0
    for segment in ctx.state.segments:
        closeness = similarity(vector, vector_of(segment.centroid))
        if segment.last_turn < before_turn and closeness > closest:
            nearest, closest = segment, closeness
    return nearest, closest


@cache
def _coherence_tuning() -> _CoherenceTuning:
    return read_tuning("coherence", _CoherenceTuning)
