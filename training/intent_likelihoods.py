"""Fit the likelihood weights of the intents that the source documents leave open.

    python -m training.intent_likelihoods [--without-model] PATH [PATH ...]

Walks every conversation of the paths (a `*.jsonl.gz`, or a folder's `*.jsonl`) turn by turn, draws
weights around the present ones and keeps those whose highest P(suspicious or malicious) best tells
attacks from innocent conversations. The risk of a message is the embedded model's word, or without
it the `keywords` score: give records the model was not trained on. Pairs stay in one fold. Priors
and the rows of safe and malicious are given and never touched. Prints how much it matters how fast
the past is forgotten, what the search gains on each fold that it did not see, then the tables for
`data/signals.toml`; take them over only where the folds gain.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from training.records import read

Array = npt.NDArray[np.float64]
# Fitted against one label, the innocent intents lose the cues that give them their names.
FREE = (Intent.SUSPICIOUS,)
FORGETTING = (0.02, 0.05, 0.1, 0.2, 0.4)
DRAWS, CONCENTRATION, FOLDS, MAX_TURNS = 600, 12.0, 4, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One conversation: its features per turn, its label, and the fold it is in."""

    features: Array
    is_attack: bool
    fold: int


def records(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield every record of the files and folders."""
    for path in paths:
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            yield from read(file)


def conversations(paths: list[Path], encoder: Encoder | None) -> Iterator[Walked]:
    """Yield every conversation of at least two user turns."""
    for record in records(paths):
        said = [m["content"] for m in record["messages"] if m["role"] == "user"]
        if len(said) >= 2:
            side = zlib.crc32(str(record.get("pair") or record["id"]).encode())
            yield Walked(
                features=walk(said[:MAX_TURNS], encoder),
                is_attack=record["label"] == "attack",
                fold=side % FOLDS,
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


def quality(weights: Array, walked: list[Walked], forgetting: float | None = None) -> float:
    """Return the area under the curve of each conversation's highest malicious share."""
    model = intent_model()
    forgetting = model.forgetting if forgetting is None else forgetting
    prior = np.array([model.prior[kind] for kind in Intent])
    posterior, peak = np.tile(prior, (len(walked), 1)), np.zeros(len(walked))
    for turn in range(max(len(c.features) for c in walked)):
        going = np.array([turn < len(c.features) for c in walked])
        features = np.array([c.features[turn] for c in walked if turn < len(c.features)])
        likelihood = model.floor + (1 - model.floor) * features @ weights.T
        carried = (1 - forgetting) * posterior[going] + forgetting * prior
        joint = carried * likelihood
        posterior[going] = joint / joint.sum(axis=1, keepdims=True)
        peak[going] = np.maximum(peak[going], posterior[going, -2:].sum(axis=1))
    return float(roc_auc_score([c.is_attack for c in walked], peak))


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


def fitted(walked: list[Walked]) -> Array:
    """Return weights half of the way to the best that a search with a fixed seed finds.

    Only half, because the corpus shows some cues in too few turns to do without them.
    """
    rng = np.random.default_rng(0)
    start = best = present()
    best_quality = quality(best, walked)
    for _ in range(DRAWS):
        candidate = drawn(best, rng)
        reached = quality(candidate, walked)
        if reached > best_quality:
            best, best_quality = candidate, reached
    middle: Array = (start + best) / 2
    return middle


def main() -> None:
    """Print the gain on each unseen fold, then the weights fitted on all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--without-model", action="store_true")
    options = parser.parse_args()
    walked = list(conversations(options.paths, None if options.without_model else shared_encoder()))
    print(f"# {len(walked)} conversations, {sum(c.is_attack for c in walked)} attacks")
    for share in FORGETTING:
        print(f"# AUC with forgetting {share}: {quality(present(), walked, share):.3f}")
    for fold in range(FOLDS):
        seen = [c for c in walked if c.fold != fold]
        unseen = [c for c in walked if c.fold == fold]
        weights = fitted(seen)
        before, after = quality(present(), unseen), quality(weights, unseen)
        print(f"# AUC on unseen fold {fold}: {before:.3f} -> {after:.3f}")
    best = fitted(walked)
    for kind in FREE:
        print(f"\n[intent.likelihood.{kind.value}]")
        for feature, weight in zip(Feature, best[list(Intent).index(kind)], strict=True):
            if weight >= 0.005:
                print(f"{feature.value} = {weight:.2f}")


if __name__ == "__main__":
    main()
