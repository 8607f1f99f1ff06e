"""Step 8: fit how much each signal counts, and the priors for each false-positive budget.

    python -m training.fit_evidence .train/data .train/scores MODEL WEIGHTS

All signals are fitted jointly on examples that trained neither reader (held-out records and whole
development sources), so that correlated ones do not count twice: a logistic regression of
"answering this turn serves an attack" on the signals' scores, weights not below zero, every source
and label weighing alike. The readers' logits are those of the `score` stage of training, blended as
the manifest says; the other signals are computed from the text.

Signals that need a whole session (session, continuation, probing) cannot be fitted on single
examples; their weights are set, and the bundled scenarios hold them. The rest are measurements.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from scipy.optimize import minimize

from promptguard.config import ControllerConfig
from promptguard.fil.engine import FrozenInstinct
from promptguard.model.artifact import open_artifact
from promptguard.patterns.wordlist import shipped_concepts
from promptguard.protocols import FilReading, TurnContext
from promptguard.signals.readings import concept_weights
from promptguard.signals.readings import fil as fil_signal
from promptguard.signals.subject import subjects_of
from promptguard.signals.wording import keywords
from promptguard.state import SessionState
from promptguard.text.read import TextViews, read_text
from training.calibrate import load_part, with_gloss
from training.records import read

SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
BLOCK = math.log(0.7 / 0.3)
STRENGTH = 1e-4
PER_SOURCE = 400
# A talk of several turns may be blocked at any of them: the share is held for the whole talk.
TURNS_OF_A_TALK = 4
# The share is held for ordinary documents; innocent twins of poisoned ones, made to look like them,
# are allowed five times as much, as in `fit_talks.py`. Documents as a whole have half as much again
# as turns: what is flagged is taken out of the result, and the user's thread goes on.
TWIN_SHARE, DOCUMENT_SHARE = 5, 1.5
FEW = 30  # records from which on a source counts like any other
# The thorough reader is asked from such log-odds on that this part of innocent single texts, each
# source alike, costs its time.
ASKED, HIGHEST = 0.17, 4.0
BALANCED = 0.01
FITTED = ("semantic", "context", "concepts", "keywords", "fil")
LOGIT = frozenset({"semantic", "context", "concepts"})
SET = {
    "session": {"link": "linear", "scale": 1.5},
    "system_rules": {"link": "linear", "scale": 1.2},
    "continuation": {"link": "linear", "scale": 2.5},
    "probing": {"link": "linear", "scale": 1.0},
    "form": {"link": "linear", "scale": 8.0, "from_share": 0.05},  # odd, not harmful: strict only
    "judge": {"link": "logit", "scale": 0.8, "limit": 3.0},
}
MEASURED = (
    "trajectory", "information_gathering", "coherence", "behavior", "response", "intent",
)  # fmt: skip
LIMITS = {"semantic": 8.0, "context": 8.0, "concepts": 2.0, "keywords": 2.0, "fil": 5.0}


@dataclass(frozen=True)
class Examples:
    """What is fitted on: one row a turn or document."""

    values: np.ndarray
    labels: np.ndarray
    sources: np.ndarray
    weights: np.ndarray
    is_first: np.ndarray
    is_twin: np.ndarray


def even(sources: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return weights under which sources count alike within a label, and labels alike."""
    keys = list(zip(sources.tolist(), labels.tolist(), strict=True))
    counts = Counter(keys)
    per_label = Counter(label for _, label in counts)
    return np.array([0.5 / per_label[label] / counts[(s, label)] for s, label in keys])


def text_scores(text: str, instinct: FrozenInstinct) -> list[float]:
    """Return the scores of the signals that need only the text."""
    views = read_text(text)
    reading: FilReading = instinct.assess(views, now=0.0)
    ctx = context_of(text, views, reading)
    odds = concept_weights().log_odds(shipped_concepts().match(views.folded))
    return [odds, keywords(ctx).score, fil_signal(ctx).score]


def context_of(text: str, views: TextViews, reading: FilReading) -> TurnContext:
    """Return the context of a text that stands alone."""
    state = SessionState(session_id="fit")
    return TurnContext(
        state=state,
        turn=1,
        now=0.0,
        text=text,
        views=views,
        fil=reading,
        subjects=subjects_of(state, views, reading, None),
        message_risk=0.0,
    )


def load(options: Any, name: str) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return the examples of one set and the readers' logits."""
    rows = list(read(options.data / f"{name}.jsonl.gz"))
    return rows, with_gloss(load_part(options.scores, name), options.gloss)


def chosen(rows: list[dict[str, Any]], tasks: tuple[str, ...]) -> list[int]:
    """Return the indices of at most so many rows of a source, label and task."""
    seen: Counter[tuple[str, int, str]] = Counter()
    kept = []
    for index in np.random.default_rng(0).permutation(len(rows)).tolist():
        row = rows[index]
        key = (row["source"], row["attack"], row["task"])
        seen[key] += 1
        if row["task"] in tasks and seen[key] <= PER_SOURCE:
            kept.append(index)
    return kept


def turns_of(options: Any, calibration: dict[str, Any], *, both: bool) -> Examples:
    """Return the user turns of both sets."""
    instinct = FrozenInstinct.load()
    values, labels, sources, firsts = [], [], [], []
    for name in ("held", "dev"):
        rows, scores = load(options, name)
        for index in chosen(rows, ("message", "context")):
            row = rows[index]
            users = [text for role, text in row["said"] if role == "user"]
            if not users:
                continue
            quick = float(scores["quick_message"][index, 0])
            if len(users) > 1:  # of a talk only the highest turn is known: the context must tell
                quick = min(quick, 0.0)
            deep = float(scores["thorough_message"][index, 0])
            blend = calibration["attack"].both if both else calibration["attack"].alone
            turn = calibration["turn"].both if both else calibration["turn"].alone
            values.append(
                [
                    blend.quick * quick + blend.thorough * deep + blend.shift,
                    turn.quick * float(scores["quick_context"][index, 0])
                    + turn.thorough * float(scores["thorough_context"][index, 0])
                    + turn.shift,
                    *text_scores(users[-1], instinct),
                ]
            )
            labels.append(row["attack"])
            sources.append(row["source"])
            firsts.append(len(users) == 1)
    y, s = np.array(labels), np.array(sources)
    # The engine holds scores within a millionth of 0 and 1, which are these log-odds.
    clipped = np.clip(np.array(values), -13.8, 13.8)
    return Examples(clipped, y, s, even(s, y), np.array(firsts), np.zeros(len(y), bool))


def documents_of(options: Any, calibration: dict[str, Any]) -> Examples:
    """Return the untrusted contents of both sets."""
    values, labels, sources, twins = [], [], [], []
    for name in ("held", "dev"):
        rows, scores = load(options, name)
        blend = calibration["document"].both  # near the line the thorough reader is always asked
        for index in chosen(rows, ("document",)):
            quick = blend.quick * float(scores["quick_document"][index])
            deep = blend.thorough * float(scores["thorough_document"][index])
            values.append([quick + deep + blend.shift])
            labels.append(rows[index]["attack"])
            sources.append(rows[index]["source"])
            twins.append(bool(rows[index]["pair"]))
    y, s = np.array(labels), np.array(sources)
    first = np.ones(len(y), bool)
    return Examples(np.array(values), y, s, even(s, y), first, np.array(twins))


def fitted(data: Examples) -> np.ndarray:
    """Return one weight per column, at least zero; first and later turns have their own prior."""
    first = data.is_first.astype(float)
    columns = np.column_stack([data.values, first, 1 - first])

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        odds = columns @ p
        off = data.weights * (1 / (1 + np.exp(-odds)) - data.labels)
        value = (data.weights * (np.logaddexp(0, odds) - data.labels * odds)).sum()
        return float(value + STRENGTH * (p**2).sum()), columns.T @ off + 2 * STRENGTH * p

    width = data.values.shape[1]
    # Left free, a signal that goes with a stronger one could end up speaking for innocence.
    bounds = [(0.0, None)] * width + [(None, None)] * 2
    start = np.append(np.full(width, 0.3), [0.0, 0.0])
    found: np.ndarray = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return found[:width]


def prior_for(nats: np.ndarray, sources: np.ndarray, share: float) -> float:
    """Return the prior at which `share` of innocent traffic, sources alike, reaches the block.

    A source of few records counts by them, or a single record of it could set the prior.
    """
    counts = Counter(sources.tolist())
    weights = np.array([1 / max(counts[s], FEW) for s in sources.tolist()])
    order = np.argsort(-nats)
    reached = np.cumsum(weights[order]) / weights.sum()
    # Just below the prior that blocks the record at the bound.
    return BLOCK - float(nats[order][np.searchsorted(reached, share)]) - 1e-6


def doubt_of(turns: Examples, shallow: np.ndarray, prior: float) -> dict[str, float]:
    """Return the bounds between which the thorough reader is asked."""
    picked = (turns.labels == 0) & turns.is_first
    reached = BLOCK - prior_for(shallow[picked], turns.sources[picked], ASKED)
    return {"low": round(float(reached) + prior, 2), "high": HIGHEST}


def document_prior(papers: Examples, written: np.ndarray, share: float) -> float:
    """Return the stricter of the priors for ordinary documents and for innocent twins."""
    found = []
    share *= DOCUMENT_SHARE
    for is_twin, part in ((False, share), (True, min(0.5, TWIN_SHARE * share))):
        picked = (papers.labels == 0) & (papers.is_twin == is_twin)
        found.append(prior_for(written[picked], papers.sources[picked], part))
    return min(found)


def main() -> None:
    """Fit, set the budgets, write the weights file."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "scores", "model", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    # The thorough reader is asked by the prior of this budget, which must be the default one.
    assert ControllerConfig().preset == "balanced"
    manifest = open_artifact(options.model).manifest
    calibration, options.gloss = manifest.calibration, manifest.gloss.share
    turns = turns_of(options, calibration, both=False)
    deep = turns_of(options, calibration, both=True)
    scales = fitted(turns)
    print(dict(zip(FITTED, scales.round(3).tolist(), strict=True)))
    nats = deep.values @ scales
    papers = documents_of(options, calibration)
    order = max(float(fitted(papers)[0]), 0.3)
    innocent = deep.labels == 0
    first, later = innocent & deep.is_first, innocent & ~deep.is_first
    written = papers.values[:, 0] * order
    budgets = [
        {
            "share": share,
            "first": round(prior_for(nats[first], deep.sources[first], share), 4),
            "later": round(prior_for(nats[later], deep.sources[later], share / TURNS_OF_A_TALK), 4),
            "document": round(document_prior(papers, written, share), 4),
        }
        for share in SHARES
    ]
    report(deep, nats, papers, written, budgets)
    balanced = next(b for b in budgets if b["share"] == BALANCED)
    shallow = turns.values @ scales
    report_doubt(turns, shallow, nats, balanced["first"])
    weights = {
        name: {
            "link": "logit" if name in LOGIT else "linear",
            "scale": round(float(scale), 4),
            "limit": LIMITS[name],
        }
        for name, scale in zip(FITTED, scales, strict=True)
    }
    weights |= SET | {name: {"link": "linear", "scale": 0.0} for name in MEASURED}
    body = {
        "version": options.version,
        "fitted_on": (
            f"{len(turns.labels)} turns and {len(papers.labels)} documents that trained no reader, "
            f"of {len(set(turns.sources.tolist()) | set(papers.sources.tolist()))} sources"
        ),
        "signals": weights,
        "documents": {
            "order": {"link": "logit", "scale": round(order, 4), "limit": 12.0},
            "rules": {"link": "linear", "scale": 2.0},
            "hidden": {"link": "linear", "scale": 1.0},
            "bare": {"link": "logit", "scale": 0.6, "limit": 3.0},
        },
        "memory": {"half_life_turns": 24.0, "half_life_s": 14400.0, "residue": 0.1, "floor": -4.0},
        "doubt": doubt_of(turns, shallow, balanced["first"]),
        "modes": {
            "CAUTIOUS": 0.15, "ELEVATED": 0.3, "SUSPECT": 0.5, "CRITICAL": 0.7, "UNSAFE": 0.85,
            "hysteresis": 0.05,
        },
        "budgets": budgets,
    }  # fmt: skip
    options.out.write_text(tomli_w.dumps(body), encoding="utf-8")
    print(json.dumps(budgets, indent=1))


def report_doubt(turns: Examples, shallow: np.ndarray, deep: np.ndarray, prior: float) -> None:
    """Print what asking the thorough reader from different log-odds on costs and catches."""
    for low in (-1.0, -2.0, -3.0, -4.0, -5.0, -20.0):
        asked = (shallow + prior >= low) & (shallow + prior <= HIGHEST)
        odds = np.where(asked, deep, shallow) + prior
        parts = []
        for label in (1, 0):
            picked = (turns.labels == label) & turns.is_first
            for name, values in (("asked", asked), ("blocked", odds >= BLOCK)):
                by = [
                    values[picked & (turns.sources == s)].mean() for s in set(turns.sources[picked])
                ]
                parts.append(f"{'attacks' if label else 'innocent'} {name} {np.mean(by):.3f}")
        print(f"thorough from {low}: " + ", ".join(parts))


def report(
    turns: Examples,
    nats: np.ndarray,
    papers: Examples,
    written: np.ndarray,
    budgets: list[dict[str, float]],
) -> None:
    """Print what each budget catches, sources alike."""
    for budget in budgets:
        prior = np.where(turns.is_first, budget["first"], budget["later"])
        caught = (nats + prior >= BLOCK).astype(float)
        lines = []
        for label, name in ((1, "caught"), (0, "innocent")):
            for first in (True, False):
                picked = (turns.labels == label) & (turns.is_first == first)
                by = [
                    caught[picked & (turns.sources == s)].mean() for s in set(turns.sources[picked])
                ]
                lines.append(f"{name} {'first' if first else 'later'} {np.mean(by):.3f}")
        hit = written + budget["document"] >= BLOCK
        for label in (1, 0):
            picked = papers.labels == label
            by = [hit[picked & (papers.sources == s)].mean() for s in set(papers.sources[picked])]
            lines.append(f"documents {label}: {np.mean(by):.3f}")
        print(f"share {budget['share']}: " + ", ".join(lines))


if __name__ == "__main__":
    main()
