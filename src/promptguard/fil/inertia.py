"""How a directive that was hit again and again weighs more the next time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from promptguard.conversation import Role
from promptguard.fil.directives import Directive, counts_for
from promptguard.fil.parameters import FilParameters, InertiaWeights
from promptguard.state import ConversationHistory


def events_of(directive: str, history: ConversationHistory, window_turns: int) -> int:
    """Return how many of the last `window_turns` user messages violated `directive` or a child."""
    users = [message for message in history.messages if message.role is Role.USER]
    kind = Directive(directive)
    return sum(
        any(counts_for(event, kind) for event in message.fil_violations)
        for message in users[-window_turns:]
    )


def amplification(events: int, weights: InertiaWeights) -> float:
    """Return 1 for few events, then more with each, up to the maximum."""
    if events < weights.free_events:
        return 1.0
    return min(weights.max_amplification, 1.0 + weights.step * (events - weights.free_events))


def amplifications(
    directives: Iterable[str], history: ConversationHistory, weights: InertiaWeights
) -> dict[str, float]:
    """Return the amplification of each of `directives`, given the past."""
    return {
        directive: amplification(events_of(directive, history, weights.window_turns), weights)
        for directive in directives
    }


def inertia_score(amps: Mapping[str, float], parameters: FilParameters) -> float:
    """Return what the amplifications add to the sum: Σ (amp - 1) · severity · share."""
    share = parameters.inertia.score_share
    return sum((amp - 1.0) * parameters.severity[key] * share for key, amp in amps.items())
