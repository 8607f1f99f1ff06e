"""Signal `concepts`: hazards, means, intents and evasions named together, in any language."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from promptguard.errors import DataError
from promptguard.model.network import sigmoid
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.verdict import SignalScore

_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptWeights:
    """Learned once over all languages: log-odds per concept and per pair of concept groups."""

    base: float
    concepts: Mapping[str, float]
    pairs: Mapping[str, float]

    def log_odds(self, names: Iterable[str]) -> float:
        """Return the log-odds of an attack given the concepts a text names."""
        found = sorted(names)
        # The pairs are a set, whose order changes from process to process; `fsum` is exact in any.
        single = math.fsum(self.concepts.get(name, 0.0) for name in found)
        return self.base + single + math.fsum(self.pairs.get(p, 0.0) for p in pairs_of(found))


def pairs_of(names: Iterable[str]) -> frozenset[str]:
    """Return the pairs worth a weight of their own: a hazard, evasion or protected thing with
    each means, intent and innocent frame beside it."""
    found = sorted(names)
    matters = [name for name in found if name.startswith(("hazard.", "evasion.", "protected."))]
    frames = [name for name in found if name.startswith(("means.", "intent.", "innocent."))]
    groups = {f"{a.split('.')[0]}+{b}" for a in matters for b in frames}
    return frozenset(groups | {f"{a}+{b.split('.')[0]}" for a in matters for b in frames})


@SIGNALS.register("concepts")
def concepts(ctx: TurnContext) -> SignalScore:
    """Return the probability of an attack by what is named, whatever the language."""
    weights = concept_weights()
    ordered = sorted(ctx.concepts, key=lambda name: (-weights.concepts.get(name, 0.0), name))
    reason = ", ".join(ordered[:_NAMED]) or "names nothing telling"
    return SignalScore(name="concepts", score=sigmoid(weights.log_odds(ordered)), reason=reason)


@cache
def concept_weights() -> ConceptWeights:
    """Return the shipped weights."""
    source = files("promptguard").joinpath("data/concept_weights.json").read_text(encoding="utf-8")
    try:
        body = json.loads(source)
        return ConceptWeights(
            base=float(body["base"]), concepts=dict(body["concepts"]), pairs=dict(body["pairs"])
        )
    except (ValueError, KeyError, TypeError):
        raise DataError("concept_weights.json is broken; make it anew with training.") from None
