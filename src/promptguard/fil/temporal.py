"""What earlier turns mean for the current one: decay, inertia, escalation, the counterfactual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from promptguard.conversation import Role
from promptguard.fil.directives import Directive, counts_for
from promptguard.fil.parameters import (
    DecayWeights,
    EscalationWeights,
    FilParameters,
    InertiaWeights,
)
from promptguard.protocols import FilReading
from promptguard.state import ConversationHistory, ConversationMessage, EscalationEvent, Residue

RISING = "rising"
DIVERSE = "diverse"
BURST = "burst"


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Whether the past makes a violation of the current message, how severe, and why."""

    severity: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What earlier turns mean for a message: how much its directives weigh, shapes, why.

    `inertia` is what the amplifications add to the sum: Σ (amp - 1) · severity · share.
    """

    amplifications: Mapping[str, float]
    inertia: float
    shapes: tuple[str, ...]
    judged: Counterfactual


class ExpiringTurn(Protocol):
    """A turn that leaves the window of exact turns."""

    @property
    def directives(self) -> Sequence[str]:
        """What it violated."""

    @property
    def harm_score(self) -> float:
        """How harmful it was."""


def past_of(
    violated: Sequence[str], history: ConversationHistory, parameters: FilParameters, *, now: float
) -> Past:
    """Return what the past means for a message that violates these directives."""
    weights, severity = parameters.inertia, parameters.severity
    amps = {
        directive: amplification(events_of(directive, history, weights.window_turns), weights)
        for directive in violated
    }
    shapes = escalation_shapes(history, parameters.escalation, now=now)
    return Past(
        amplifications=amps,
        inertia=sum((amp - 1.0) * severity[key] * weights.score_share for key, amp in amps.items()),
        shapes=shapes,
        judged=counterfactual(violated, history, shapes, parameters, now=now),
    )


def decay(age_s: float, weights: DecayWeights) -> float:
    """Return what is left of an event: halved every half-life, never below the floor.

    A clock gone backwards is age zero.
    """
    return float(max(weights.floor, 2.0 ** (-max(0.0, age_s) / weights.half_life_s)))


def risk_per_directive(
    history: ConversationHistory, parameters: FilParameters, *, now: float
) -> dict[str, float]:
    """Return Σ harm · decay · severity per directive over user messages, plus the residues."""
    risk: defaultdict[str, float] = defaultdict(float)
    for message in _said(history):
        left = message.harm_score * decay(now - message.timestamp, parameters.decay)
        for directive in message.fil_violations:
            # A stored session may name a directive that these parameters do not know.
            risk[directive] += left * parameters.severity.get(directive, 0.0)
    for residue in history.residues:
        severity = parameters.severity.get(residue.directive, 0.0)
        # What has left the window counts as if it had faded as far as anything does.
        risk[residue.directive] += residue.harm * parameters.decay.floor * severity
    return dict(risk)


def is_risky(history: ConversationHistory, parameters: FilParameters, *, now: float) -> bool:
    """Return whether what is left of past violations reaches the cumulative threshold."""
    risk = risk_per_directive(history, parameters, now=now)
    return sum(risk.values()) >= parameters.counterfactual.threshold


def escalation_shapes(
    history: ConversationHistory, weights: EscalationWeights, *, now: float
) -> tuple[str, ...]:
    """Return the names of the escalation patterns that the past shows, none or several."""
    users = _said(history)
    shapes = []
    scores = [message.harm_score for message in users[-weights.rising_scores :]]
    if (
        len(scores) == weights.rising_scores
        and all(left <= right for left, right in pairwise(scores))
        and scores[-1] >= weights.rising_last_at_least
    ):
        shapes.append(RISING)
    distinct = {directive for message in users for directive in message.fil_violations}
    if len(distinct) >= weights.distinct_directives:
        shapes.append(DIVERSE)
    if len(_recent(history.escalation_events, weights, now)) >= weights.burst_messages:
        shapes.append(BURST)
    return tuple(shapes)


def counterfactual(
    violated: Sequence[str],
    history: ConversationHistory,
    shapes: tuple[str, ...],
    parameters: FilParameters,
    *,
    now: float,
) -> Counterfactual:
    """Judge the current message by the past it shares directives with."""
    if not violated:
        return Counterfactual()
    weights = parameters.counterfactual
    risk = risk_per_directive(history, parameters, now=now)
    shared = [directive for directive in violated if directive in risk]
    total = sum(risk[directive] for directive in shared)
    if total >= weights.threshold:
        severity = min(total / weights.divisor, weights.max_severity)
        return Counterfactual(severity, f"earlier turns already touched {', '.join(shared)}")
    if shapes:
        return Counterfactual(weights.escalating_severity, "a violation within an escalation")
    return Counterfactual()


def fold_residue(residues: tuple[Residue, ...], leaving: ExpiringTurn) -> tuple[Residue, ...]:
    """Return the residues once `leaving` has left the window of exact turns.

    Harm is kept undecayed and is read at the decay floor: at most one residue per directive.
    """
    folded = {residue.directive: residue for residue in residues}
    for directive in leaving.directives:
        old = folded.get(directive, Residue(directive=directive, harm=0.0, events=0))
        folded[directive] = replace(old, harm=old.harm + leaving.harm_score, events=old.events + 1)
    return tuple(folded[directive] for directive in sorted(folded))


def update_escalations(
    events: tuple[EscalationEvent, ...],
    reading: FilReading,
    weights: EscalationWeights,
    *,
    turn: int,
    now: float,
) -> tuple[EscalationEvent, ...]:
    """Return the events once `turn` is judged: one per flagged message, old ones dropped."""
    kept = _recent(events, weights, now)
    if reading.is_blocking:
        kept.append(EscalationEvent(timestamp=now, turn=turn))
    return tuple(kept[-weights.max_events :])


def events_of(directive: str, history: ConversationHistory, window_turns: int) -> int:
    """Return how many of the last `window_turns` user messages violated `directive` or a child."""
    kind = Directive(directive)
    return sum(
        # A message counts once, however many children of the directive it violates.
        any(counts_for(event, kind) for event in message.fil_violations)
        for message in _said(history)[-window_turns:]
    )


def amplification(events: int, weights: InertiaWeights) -> float:
    """Return 1 for few events, then more with each, up to the maximum."""
    if events < weights.free_events:
        return 1.0
    return min(weights.max_amplification, 1.0 + weights.step * (events - weights.free_events))


def _said(history: ConversationHistory) -> list[ConversationMessage]:
    return [message for message in history.messages if message.role is Role.USER]


def _recent(
    events: Iterable[EscalationEvent], weights: EscalationWeights, now: float
) -> list[EscalationEvent]:
    return [event for event in events if max(0.0, now - event.timestamp) < weights.burst_window_s]
