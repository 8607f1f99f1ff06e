"""Step 9: fit how much each signal counts from a session's second turn on, and its priors.

    python -m training.fit_talks .train/data WEIGHTS

Runs the engine as it ships, the thorough reader where it is asked, over talks that trained no
reader (held-out records and whole development sources) and fits the scores of their later turns.
Turns of an attack count from its first open turn on where that is known, else its last. A prior
holds its share for whole talks: an innocent talk counts by its highest turn. Innocent twins of an
attack, made to look like one, are allowed five times the share of ordinary talks. Those of held-out
records count together; each development source, whose attackers the readers never saw, counts by
itself, because an attacker yet unseen may be like the worst of them. The strictest prior holds.
"""

from __future__ import annotations

import argparse
import math
import random
import tomllib
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from promptguard.config import ControllerConfig
from promptguard.conversation import messages_from
from promptguard.model.network import log_odds
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from training.calibrate import fitted, weights_of
from training.fit_evidence import BLOCK, TWIN_SHARE, prior_for
from training.records import at_most, read

SIGNALS = ("semantic", "context", "concepts", "keywords", "fil", "continuation", "probing")
LOGIT = frozenset({"semantic", "context", "concepts"})
PER_SOURCE = {"held": 20, "dev": 80}
PER_TWINS = 300  # of a development source: their quantile alone sets a prior
# Talks that return to something harmless or to the attack: few sources, and much rests on them.
AFTER, PER_AFTER = frozenset({"authored_after", "authored_recovery"}), 60
MAX_TURNS = 12
# Bounds on each scale. Left free, the fit leans on the context alone, and a harmless question after
# several hostile turns is then blocked for them: the message itself must keep a say, which talks
# with few recoveries cannot teach.
BOUNDS = {
    "semantic": (0.45, 0.6),
    "context": (0.5, 0.62),
    "concepts": (0.2, 0.45),
    "keywords": (0.2, 0.6),
    "fil": (0.8, 1.2),
    "continuation": (1.5, 2.2),
    "probing": (0.4, 1.0),
}
CONTEXT_LIMIT = 3.2
ORDINARY, DEV_TWIN = "ordinary", "dev twin"


@dataclass(frozen=True)
class Turn:
    """One later turn of a talk: its scores, whether it serves an attack, and whose it is."""

    talk: str
    source: str
    label: int
    scores: dict[str, float]
    kind: str


def is_usable(record: dict[str, Any], name: str) -> bool:
    """Say whether a record is a talk without tool results whose hostile turns are known."""
    roles = [m["role"] for m in record["messages"]]
    known = (
        record["label"] == "benign"
        or record.get("attack_turn") is not None
        or record["category"] == "resumed"
        or name == "dev"
    )
    return roles.count("user") > 1 and "tool" not in roles and known


def label_of(record: dict[str, Any], index: int, turns: int) -> int | None:
    """Return whether a turn serves an attack; None where nobody knows."""
    if record.get("last_turn_harmless") and "past_attack_turn" not in record:
        return 0 if index == turns - 1 else None
    if record["label"] == "benign":
        return int(bool(record.get("last_turn_harmless")) and index == record["past_attack_turn"])
    start = record.get("attack_turn")
    if start is None or record["category"] == "resumed":
        return 1 if index == turns - 1 else None
    return int(index >= start)


def is_innocent_twin(record: dict[str, Any]) -> bool:
    """Say whether a record is an innocent talk made to look like an attack."""
    return record["label"] == "benign" and "matched" in record["category"]


def kind_of(record: dict[str, Any], name: str) -> str:
    """Return the budget that an innocent talk counts for."""
    if not record.get("pair") and "matched" not in record["category"]:
        return ORDINARY
    return f"{DEV_TWIN} {record['source']}" if name == "dev" else "held twin"


def drawn(records: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return at most so many records of each source and label."""
    return at_most(records, most, lambda record: (record["source"], record["label"]))


def talks_of(data: Path, name: str) -> list[dict[str, Any]]:
    """Return the talks of one set that are judged."""
    records = [r for r in read(data / f"{name}_records.jsonl.gz") if is_usable(r, name)]
    random.Random(5).shuffle(records)
    after = [r for r in records if r["source"] in AFTER]
    twins = [r for r in records if name == "dev" and is_innocent_twin(r)]
    others = [r for r in records if r["source"] not in AFTER and r not in twins]
    parts = [(others, PER_SOURCE[name]), (after, PER_AFTER), (twins, PER_TWINS)]
    return [record for part, most in parts for record in drawn(part, most)]


@cache
def judge_by(weights: Path) -> TurnJudge:
    """Return the judge of a process."""
    return TurnJudge.open(ControllerConfig(store="memory:", weights=str(weights)))


def turns_of(weights: Path, name: str, record: dict[str, Any]) -> list[Turn]:
    """Return the later turns of one talk."""
    said = messages_from([m for m in record["messages"] if m.get("content")])
    steps = steps_of(said)[:MAX_TURNS]
    verdicts = [verdict for verdict, _ in walk(judge_by(weights), steps)]
    found = []
    for index, verdict in enumerate(verdicts):
        label = label_of(record, index, len(verdicts))
        # First turns have scales of their own, from the step before.
        if index and label is not None:
            scores = {score.name: score.score for score in verdict.scores}
            kind = kind_of(record, name)
            found.append(Turn(record["id"], record["source"], label, scores, kind))
    return found


def features(turns: list[Turn]) -> np.ndarray:
    """Return one row a turn."""
    return np.array(
        [[log_odds(t.scores[n]) if n in LOGIT else t.scores[n] for n in SIGNALS] for t in turns]
    )


def talk_prior(tops: list[tuple[str, float]], share: float) -> float:
    """Return the prior at which `share` of innocent talks, sources alike, reaches the block."""
    values, owners = np.array([v for _, v in tops]), np.array([s for s, _ in tops])
    return prior_for(values, owners, share)


def main() -> None:
    """Fit, and write the later scales and priors into the weights file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    turns: list[Turn] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in PER_SOURCE:
            judged = pool.map(
                partial(turns_of, options.weights, name), talks_of(options.data, name), chunksize=8
            )
            turns += chain.from_iterable(judged)
    values = features(turns)
    labels = np.array([turn.label for turn in turns])
    sources = np.array([turn.source for turn in turns])
    scales = fitted(values, labels, weights_of(sources, labels))[:-1]
    print(f"{len(turns)} turns, free fit {dict(zip(SIGNALS, scales.round(2), strict=True))}")
    held = [float(np.clip(v, *BOUNDS[n])) for n, v in zip(SIGNALS, scales, strict=True)]
    body = tomllib.loads(options.weights.read_text(encoding="utf-8"))
    for name, scale in zip(SIGNALS, held, strict=True):
        body["signals"][name]["later"] = round(scale, 4)
    body["signals"]["context"]["limit"] = CONTEXT_LIMIT
    # Where a signal names no limit, the default of `SignalWeight` holds.
    limits = np.array([body["signals"][name].get("limit", 8.0) for name in SIGNALS])
    nats = np.clip(values * np.array(held), -limits, limits).sum(1)
    highest: dict[tuple[str, str], float] = defaultdict(lambda: -math.inf)
    for turn, value in zip(turns, nats, strict=True):
        if not turn.label:
            key = (turn.talk, turn.source)
            highest[key] = max(highest[key], float(value))
    attacked = {turn.talk for turn in turns if turn.label}
    kinds = {turn.talk: turn.kind for turn in turns}
    tops: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for (talk, source), value in highest.items():
        # A talk that holds an attack says nothing of innocent ones, not even by its harmless turns.
        if talk not in attacked:
            tops[kinds[talk]].append((source, value))
    for budget in body["budgets"]:
        share = budget["share"]
        priors = {}
        for kind, values in tops.items():
            allowed = share if kind == ORDINARY else min(0.5, TWIN_SHARE * share)
            priors[kind] = talk_prior(values, allowed)
        print({kind: round(prior, 2) for kind, prior in priors.items()})
        budget["later"] = round(min(priors.values()), 4)
        caught = nats[labels == 1] + budget["later"] >= BLOCK
        print(f"share {budget['share']}: later {budget['later']}, caught {caught.mean():.3f}")
    print({kind: len(values) for kind, values in tops.items()})
    options.weights.write_text(tomli_w.dumps(body), encoding="utf-8")


if __name__ == "__main__":
    main()
