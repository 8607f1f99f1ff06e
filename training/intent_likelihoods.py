"""Fit the likelihood weights of the intents that the source documents leave open.

    python -m training.intent_likelihoods [--without-model] FOLDER [FOLDER ...]

Walks every conversation of the folders' `*.jsonl` turn by turn, draws weights around the present
ones and keeps those whose highest P(suspicious or malicious) best tells attacks from innocent
conversations. The risk of a message is the embedded model's word, or without it the `keywords`
score. Pairs stay on one side of the split. Priors and the rows of safe and malicious are given
and never touched; prints the tables for `data/signals.toml`. Take them over only where the
held-out part gains as well.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from promptguard.model.encoder import shared_encoder
from promptguard.model.reading import MessageReading
from promptguard.protocols import Encoder, FilReading, TurnContext
from promptguard.signals.information_gathering import gathering_step
from promptguard.signals.intent import Feature, Intent, intent_model, turn_features
from promptguard.signals.keywords import keywords
from promptguard.state import RECENT_TURNS, Action, Mode, SessionState, TurnRecord
from promptguard.text.read import read_text
from promptguard.text.terms import key_terms
from promptguard.vector import pack_vector

Array = npt.NDArray[np.float64]
FREE = (Intent.EDUCATIONAL, Intent.PROFESSIONAL, Intent.CURIOUS, Intent.SUSPICIOUS)
DRAWS, CONCENTRATION, HELD_OUT, MAX_TURNS = 600, 12.0, 4, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One conversation: its features per turn, its label, and which side of the split it is on."""

    features: Array
    is_attack: bool
    is_held_out: bool


def conversations(folders: list[Path], encoder: Encoder | None) -> Iterator[Walked]:
    """Yield every conversation of at least two user turns."""
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                said = [m["content"] for m in record["messages"] if m["role"] == "user"]
                if len(said) >= 2:
                    side = zlib.crc32(str(record.get("pair") or record["id"]).encode())
                    yield Walked(
                        features=walk(said[:MAX_TURNS], encoder),
                        is_attack=record["label"] == "attack",
                        is_held_out=side % HELD_OUT == 0,
                    )


def walk(said: list[str], encoder: Encoder | None) -> Array:
    """Return the features of each user turn, in the order of `Feature`."""
    state = SessionState(session_id="training")
    rows = []
    readings = encoder.read_messages(said) if encoder else (None,) * len(said)
    for turn, (text, reading) in enumerate(zip(said, readings, strict=True)):
        ctx = context(state, turn, text, reading)
        found = turn_features(ctx)
        rows.append([found[feature] for feature in Feature])
        recent = (*state.recent, remembered(ctx))[-RECENT_TURNS:]
        state = replace(state, recent=recent)
    return np.array(rows)


def context(
    state: SessionState, turn: int, text: str, reading: MessageReading | None
) -> TurnContext:
    """Return the turn as the signals see it."""
    ctx = TurnContext(
        state=state,
        turn=turn,
        now=0.0,
        text=text,
        views=read_text(text),
        fil=FilReading(),
        message_risk=reading.attack if reading else 0.0,
        reading=reading,
        embedding=reading.embedding if reading else None,
    )
    return ctx if reading else replace(ctx, message_risk=keywords(ctx).score)


def remembered(ctx: TurnContext) -> TurnRecord:
    """Return what is kept of a turn."""
    return TurnRecord(
        turn=ctx.turn,
        excerpt="",
        content_hash="",
        timestamp=0.0,
        message_risk=ctx.message_risk,
        risk=0.0,
        mode=Mode.SAFE,
        action=Action.ALLOW,
        key_terms=key_terms(ctx.views.plain),
        gathering_step=gathering_step(ctx.views.folded),
        embedding="" if ctx.embedding is None else pack_vector(ctx.embedding),
    )


def quality(weights: Array, walked: list[Walked]) -> float:
    """Return the area under the curve of each conversation's highest malicious share."""
    model = intent_model()
    prior = np.array([model.prior[kind] for kind in Intent])
    scores = []
    for conversation in walked:
        posterior, peak = prior, 0.0
        likelihoods = model.floor + (1 - model.floor) * conversation.features @ weights.T
        for likelihood in likelihoods:
            posterior = ((1 - model.forgetting) * posterior + model.forgetting * prior) * likelihood
            posterior = posterior / posterior.sum()
            peak = max(peak, float(posterior[-2:].sum()))
        scores.append(peak)
    return float(roc_auc_score([c.is_attack for c in walked], scores))


def present() -> Array:
    """Return the weights now in use, one row per intent."""
    rows = intent_model().likelihood
    return np.array([[rows[kind].get(feature, 0.0) for feature in Feature] for kind in Intent])


def drawn(weights: Array, rng: np.random.Generator) -> Array:
    """Return weights near the given ones: the same features, sums kept, free rows only."""
    new = weights.copy()
    for kind in FREE:
        row = list(Intent).index(kind)
        used = weights[row] > 0
        new[row, used] = rng.dirichlet(CONCENTRATION * weights[row, used] + 0.2)
    return new


def main() -> None:
    """Search with a fixed seed, then print the result and how it does on the held-out part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--without-model", action="store_true")
    options = parser.parse_args()
    encoder = None if options.without_model else shared_encoder()
    walked = list(conversations(options.folders, encoder))
    seen = [c for c in walked if not c.is_held_out]
    unseen = [c for c in walked if c.is_held_out]
    rng = np.random.default_rng(0)
    start = best = present()
    best_quality = quality(best, seen)
    for _ in range(DRAWS):
        candidate = drawn(best, rng)
        reached = quality(candidate, seen)
        if reached > best_quality:
            best, best_quality = candidate, reached
    print(f"# {len(seen)} conversations to fit, {len(unseen)} held out")
    print(f"# AUC fit {quality(start, seen):.3f} -> {best_quality:.3f}")
    print(f"# AUC held out {quality(start, unseen):.3f} -> {quality(best, unseen):.3f}")
    for kind in FREE:
        print(f"\n[intent.likelihood.{kind.value}]")
        for feature, weight in zip(Feature, best[list(Intent).index(kind)], strict=True):
            if weight >= 0.005:
                print(f"{feature.value} = {weight:.2f}")


if __name__ == "__main__":
    main()
