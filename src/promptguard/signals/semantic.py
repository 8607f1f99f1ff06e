"""Signal `semantic`: what the embedded readers say of the message alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptguard.model.reading import MessageReading
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.signals.clusters import shipped_clusters
from promptguard.signals.score import clipped, either, scored
from promptguard.signals.subject import is_follow_up
from promptguard.signals.tuning import read_tuning
from promptguard.verdict import SignalScore

_KINDS = ("manipulative", "extractive", "harmful")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tuning:
    decoded_weight: float
    disguise_weight: float
    named_from: float
    cluster_from: float


@SIGNALS.register("semantic")
def semantic(ctx: TurnContext) -> SignalScore:
    """Return the probability of an attack in the message.

    A disguise adds in proportion to the risk of what it hid, so encoded data is no offence. The
    nearest intent cluster explains and never scores: beside the readers' word it adds nothing.
    """
    score = _own(ctx)
    if ctx.reading is not None and is_follow_up(ctx):
        score = max(score, 0.5)  # "go on" says nothing by itself, and nothing in its favour
    return _spoken(score, ctx.reading, _undone(ctx))


def _own(ctx: TurnContext) -> float:
    if ctx.reading is None:
        return 0.0
    tuning = _tuning()
    attack = clipped(ctx.reading.attack)
    weights = (
        tuning.decoded_weight if ctx.views.decoded else 0.0,
        tuning.disguise_weight if ctx.views.disguises else 0.0,
    )
    return either((attack, attack * max(weights)))


def _undone(ctx: TurnContext) -> tuple[str, ...]:
    methods = dict.fromkeys((*(view.method for view in ctx.views.decoded), *ctx.views.disguises))
    return (f"disguised by {', '.join(methods)}",) if methods else ()


def _spoken(score: float, reading: MessageReading | None, notes: tuple[str, ...]) -> SignalScore:
    if reading is None:
        return scored("semantic", 0.0)
    parts = {kind: clipped(getattr(reading, kind)) for kind in _KINDS}
    named = [
        f"{kind} {value:.2f}"
        for kind, value in sorted(parts.items(), key=lambda item: -item[1])
        if value >= _tuning().named_from
    ]
    near = shipped_clusters().nearest(reading.embedding)
    if near is not None:
        parts |= {"near_attack": near.attack, "near_benign": near.benign}
        if near.similarity >= _tuning().cluster_from:
            notes = (f"nearest to {near.name} ({near.similarity:.2f})", *notes)
    reason = "; ".join((", ".join(named) or f"attack {reading.attack:.2f}", *notes))
    return scored("semantic", score, reason, parts)


@cache
def _tuning() -> _Tuning:
    return read_tuning("semantic", _Tuning)
