"""What the user is after: the steps of a question asked further and further, and a running guess.

Signals `information_gathering` and `intent`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache

from promptguard.errors import DataError
from promptguard.patterns import on_change
from promptguard.protocols import Subject, TurnContext
from promptguard.signals import SIGNALS, read_tuning
from promptguard.signals.subject import is_same_subject, likeness
from promptguard.signals.wording import Phrase, phrases_in
from promptguard.verdict import SignalScore

_STEPS = (Phrase.DEFINITION, Phrase.MECHANISM, Phrase.WEAKNESS, Phrase.EXPLOIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GatheringTuning:
    question_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A turn as a link of a chain; `is_follow_up` where it names no subject of its own."""

    turn: int
    step: int
    subject: Subject
    position: int

    @property
    def is_follow_up(self) -> bool:
        return not self.subject.terms


@lru_cache(maxsize=4)
def gathering_step(folded: str) -> int:
    """Return 1..4 for the furthest step a question takes, 0 for none.

    Of a long message the beginning and the end are read: a pasted document asks nothing.
    """
    limit = _gathering_tuning().question_chars
    text = folded if len(folded) <= 2 * limit else f"{folded[:limit]} {folded[-limit:]}"
    phrases = phrases_in(text)
    return max((step for step, kind in enumerate(_STEPS, 1) if kind in phrases), default=0)


# As `phrases_in`, which it asks.
on_change(gathering_step.cache_clear)


@SIGNALS.register("information_gathering")
def information_gathering(ctx: TurnContext) -> SignalScore:
    """Return how many of the four steps of gathering the questions on this subject have taken."""
    chain = _chain(ctx)
    if not chain:
        return SignalScore(name="information_gathering", score=0.0)
    steps = ", ".join(f"{_STEPS[asked.step - 1].value} (turn {asked.turn})" for asked in chain)
    score = len(chain) / len(_STEPS)
    return SignalScore(
        name="information_gathering", score=score, reason=steps, parts={"steps": float(len(chain))}
    )


def _chain(ctx: TurnContext) -> tuple[_Asked, ...]:
    """Return the longest run of rising steps on the current turn's subject, oldest first."""
    step = gathering_step(ctx.views.folded)
    if not step:
        return ()
    asked = [
        _Asked(turn=turn.turn, step=turn.gathering_step, subject=then, position=index)
        for index, (turn, then) in enumerate(zip(ctx.state.recent, ctx.subjects.past, strict=True))
        if 0 < turn.gathering_step <= step
    ]
    position = len(ctx.state.recent)
    asked.append(_Asked(turn=ctx.turn, step=step, subject=ctx.subjects.now, position=position))
    best: list[tuple[_Asked, ...]] = []
    for index, later in enumerate(asked):
        before = [
            # the same step asked again takes the place of the earlier asking
            best[earlier] if asked[earlier].step < later.step else best[earlier][:-1]
            for earlier in range(index)
            if asked[earlier].step <= later.step and _continues(asked[earlier], later)
        ]
        best.append((*max(before, key=len, default=()), later))
    return best[-1]


def _continues(earlier: _Asked, later: _Asked) -> bool:
    """Return whether `later` asks on; "how does it work?" continues the turn before it."""
    if later.is_follow_up and later.position == earlier.position + 1:
        return True
    return is_same_subject(earlier.subject, later.subject)


@cache
def _gathering_tuning() -> _GatheringTuning:
    return read_tuning("information_gathering", _GatheringTuning)


class Intent(StrEnum):
    """What a user may be after, in the order of the posterior."""

    SAFE = "safe"
    EDUCATIONAL = "educational"
    PROFESSIONAL = "professional"
    CURIOUS = "curious"
    SUSPICIOUS = "suspicious"
    MALICIOUS = "malicious"


class Feature(StrEnum):
    """What a turn shows, each in [0,1]; likelihoods are weighted sums of these."""

    RISK = "risk"
    CALM = "calm"
    ESCALATION = "escalation"
    GATHERING = "gathering"
    HYPOTHETICAL = "hypothetical"
    META = "meta"
    DIRECTED = "directed"
    EXPLORATORY = "exploratory"
    EDUCATIONAL = "educational"
    PROFESSIONAL = "professional"
    DIVERSITY = "diversity"
    FOCUS = "focus"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentModel:
    """Priors, likelihood weights per intent, and how a posterior is carried to the next turn.

    `floor` keeps any one turn from ruling an intent out; `forgetting` is the share of the prior
    mixed in before each turn, so that no posterior is beyond recall.
    """

    prior: Mapping[str, float]
    likelihood: Mapping[str, Mapping[str, float]]
    floor: float
    forgetting: float
    neutral_diversity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeWay:
    """The posterior as safe (with educational and professional), curious, malicious."""

    safe: float
    curious: float
    malicious: float


@SIGNALS.register("intent")
def intent(ctx: TurnContext) -> SignalScore:
    """Return the posterior that the user is suspicious or malicious, this turn included."""
    posterior = update_intent(ctx.state.intent, ctx)
    view = three_way(posterior)
    likeliest = max(zip(posterior, Intent, strict=True))[1]
    reason = f"likeliest {likeliest.value}; suspicious or malicious {view.malicious:.2f}"
    parts = {kind.value: value for kind, value in zip(Intent, posterior, strict=True)}
    return SignalScore(name="intent", score=view.malicious, reason=reason, parts=parts)


def update_intent(previous: tuple[float, ...], ctx: TurnContext) -> tuple[float, ...]:
    """Return the posterior after this turn, in the order of `Intent`; () starts from the prior."""
    return posterior(previous, turn_features(ctx))


def posterior(
    previous: tuple[float, ...], features: Mapping[str, float], model: IntentModel | None = None
) -> tuple[float, ...]:
    """Return Bayes' rule applied once: previous posterior times likelihood, summing to 1."""
    model = model or intent_model()
    prior = tuple(model.prior[kind] for kind in Intent)
    before = _carried(previous, prior, model.forgetting)
    joint = [
        share * _likelihood(model, kind, features)
        for share, kind in zip(before, Intent, strict=True)
    ]
    total = sum(joint)
    return tuple(value / total for value in joint)


def three_way(posterior: tuple[float, ...]) -> ThreeWay:
    """Return the seed's view of a posterior; () is the prior's."""
    if len(posterior) != len(Intent):
        posterior = tuple(intent_model().prior[kind] for kind in Intent)
    safe, educational, professional, curious, suspicious, malicious = posterior
    return ThreeWay(
        safe=safe + educational + professional, curious=curious, malicious=suspicious + malicious
    )


def turn_features(ctx: TurnContext) -> dict[str, float]:
    """Return what the current turn shows."""
    phrases = phrases_in(ctx.views.folded)
    risk = ctx.message_risk
    diversity = _diversity(ctx)
    return {
        Feature.RISK: risk,
        Feature.CALM: 1.0 - risk,
        Feature.ESCALATION: ctx.earlier.get("trajectory", 0.0),
        Feature.GATHERING: ctx.earlier.get("information_gathering", 0.0),
        Feature.HYPOTHETICAL: float(Phrase.HYPOTHETICAL in phrases),
        Feature.META: float(Phrase.META_INSTRUCTION in phrases),
        Feature.DIRECTED: float(Phrase.DIRECTED in phrases),
        Feature.EXPLORATORY: float(Phrase.EXPLORATORY in phrases),
        Feature.EDUCATIONAL: float(Phrase.EDUCATIONAL in phrases),
        Feature.PROFESSIONAL: float(Phrase.PROFESSIONAL in phrases),
        Feature.DIVERSITY: diversity,
        Feature.FOCUS: 1.0 - diversity,
    }


def _diversity(ctx: TurnContext) -> float:
    """Return how little the turn resembles the earlier ones, on average."""
    now = ctx.subjects.now
    alike = [
        max(likeness(then, now)) for then in ctx.subjects.past if then.terms or then.vector.size
    ]
    if not alike or not (now.terms or now.vector.size):
        # A first turn is neither a change of subject nor a return to one.
        return intent_model().neutral_diversity
    return 1.0 - sum(alike) / len(alike)


def _likelihood(model: IntentModel, kind: Intent, features: Mapping[str, float]) -> float:
    weights = model.likelihood[kind]
    weighted = sum(weight * features[name] for name, weight in weights.items())
    return model.floor + (1.0 - model.floor) * weighted


def _carried(
    previous: tuple[float, ...], prior: tuple[float, ...], forgetting: float
) -> tuple[float, ...]:
    """Return the previous posterior with a little of the prior mixed in."""
    # A stored posterior may come from a version with other intents.
    is_usable = len(previous) == len(prior) and all(
        math.isfinite(share) and share >= 0.0 for share in previous
    )
    total = sum(previous) if is_usable else 0.0
    if not 0.0 < total < math.inf:
        return prior
    return tuple(
        (1.0 - forgetting) * share / total + forgetting * base
        for share, base in zip(previous, prior, strict=True)
    )


@cache
def intent_model() -> IntentModel:
    """Return the shipped model; its tables must name the known intents and features."""
    model = read_tuning("intent", IntentModel)
    kinds, names = {kind.value for kind in Intent}, {feature.value for feature in Feature}
    is_known = all(set(weights) <= names for weights in model.likelihood.values())
    if set(model.prior) != kinds or set(model.likelihood) != kinds or not is_known:
        raise DataError("signals.toml [intent] must name every intent and only known features.")
    return model
