"""Step 11: choose how much the signals count, on sources that trained nothing.

    python -m training.choose_evidence .train/data/held_records.jsonl.gz DATA \\
        src/promptguard/data/weights.toml

Held-out records are of the sources the model learned from, where it is at its best; a fit on them
leans on it too much. So the fitted weights are the start of a search: scales and leak are drawn at
random, then around the best so far, and compared by what they catch of attacks from sources
whose licence keeps them out of training, less a fine for every turn of a bundled scenario that is
not judged as it demands and for every case of the 100 + 20 set beyond those allowed for. Benign
text is that of both. The best is written, with its budgets.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from bisect import insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptguard.config import ControllerConfig
from promptguard.risk.ledger import risk_of
from promptguard.risk.modes import mode_for
from promptguard.risk.weights import PRESETS, LeakWeights, Weights, load_weights
from promptguard.scenarios import Scenario, ScenarioTurn, shipped_scenarios
from promptguard.state import Mode
from promptguard.turns.judge import TurnJudge
from promptguard.turns.verdict import TurnInput
from promptguard.turns.walk import Step, walk
from promptguard.validation.calibrate import with_budgets, write_weights
from promptguard.validation.dataset import load_dataset
from promptguard.validation.score_matrix import ScoreMatrix, matrix_of, peaks, running_sums
from promptguard.validation.score_trace import ScoreTrace, record_traces, trace_of
from training.fit_evidence import EVEN, SHARES, budget_for, chosen, even, is_talk
from training.prepare import TRAINABLE
from training.records import at_most, read
from training.score import auc, matched

PER_SOURCE = 120
TRIES, BEST, STEP = 3000, 12, 0.1
FINE, MISSED, WRONG = 0.1, 3, 1
SHARE = PRESETS["balanced"]
LOWEST_PRIOR, HIGHEST_PRIOR, CLOSE = -6.0, 0.0, 0.01
CASES = "fil/jailbreak_100.jsonl"
LEFT_OUT = {"malignant_raw"}  # few, and its origin calls the innocent ones attacks
SPACE = {
    "semantic": (0.3, 1.1),
    "context": (0.2, 1.1),
    "fil": (2.0, 8.0),
    "keywords": (0.0, 2.0),
    "coherence": (0.0, 0.5),
    "trajectory": (0.0, 1.2),
    "behavior": (0.0, 1.0),
    "intent": (0.0, 1.0),
    "response": (0.0, 0.5),
    "information_gathering": (0.0, 6.0),
    "half_life_turns": (1.0, 8.0),
    "relief_nats": (0.2, 2.0),
    "credit_half_life_turns": (0.3, 2.0),
}
Draw = dict[str, float]
Found = tuple[float, Draw, list[str]]


@dataclass(frozen=True)
class Heard:
    """What is compared on: traces of development sources and of held-out benign records."""

    matrix: ScoreMatrix
    is_single: np.ndarray
    is_dev: np.ndarray
    even: tuple[ScoreMatrix, ScoreMatrix]  # single texts and talks that the budgets are set on


@dataclass(frozen=True)
class Told:
    """A scenario as the signals heard it; `hard_turn` is the first that the rules veto."""

    scenario: Scenario
    matrix: ScoreMatrix
    hard_turn: float


@dataclass(frozen=True)
class Demands:
    """What must hold: the scenarios, and the 100 + 20 cases as single turns."""

    stories: tuple[Told, ...]
    cases: ScoreMatrix


def development_traces(path: Path, jobs: int) -> list[ScoreTrace]:
    """Return traces of records that may not be trained on."""
    records = [r for r in read(path) if r["flag"] not in TRAINABLE and r["source"] not in LEFT_OUT]
    random.Random(3).shuffle(records)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as kept:
        for record in at_most(records, PER_SOURCE, lambda r: (r["source"], r["label"])):
            kept.write(json.dumps(record) + "\n")
        kept.flush()
        cases = load_dataset([Path(kept.name)]).cases
        return list(record_traces(cases, ControllerConfig(store="memory:"), jobs=jobs))


def told(scenario: Scenario, weights: Weights) -> Told:
    """Let the signals hear a bundled conversation."""
    judge = TurnJudge.open(ControllerConfig(**scenario.config))
    steps = [
        Step(turn=TurnInput(text=turn.user, tool_contents=turn.tools), reply=turn.reply)
        for turn in scenario.turns
    ]
    trace = score_trace(judge, steps, index=0, is_attack=scenario.kind == "attack")
    return Told(scenario, matrix_of([trace], weights), trace.hard_turn or math.inf)


def heard_cases(path: Path, weights: Weights) -> ScoreMatrix:
    """Let the signals hear the 100 + 20 cases."""
    judge = TurnJudge.open(ControllerConfig(store="memory:"))
    traces = [
        score_trace(
            judge,
            [Step(turn=TurnInput(text=case["text"]))],
            index=index,
            is_attack=case["label"] == "jailbreak",
        )
        for index, case in enumerate(read(path))
    ]
    return matrix_of(traces, weights)


def score_trace(judge: TurnJudge, steps: list[Step], *, index: int, is_attack: bool) -> ScoreTrace:
    """Return the trace of a conversation that belongs to no source."""
    verdicts = [verdict for verdict, _ in walk(judge, steps)]
    return trace_of(verdicts, index=index, is_attack=is_attack, source="", group=str(index))


def faults(demands: Demands, weights: Weights, prior: float) -> list[str]:
    """Return what is not judged as demanded."""
    bar = weights.modes.odds_of(Mode.CRITICAL)
    is_blocked = prior + peaks(demands.cases, weights, prior) >= bar
    missed = int((~is_blocked & demands.cases.is_attack).sum())
    wrong = int((is_blocked & ~demands.cases.is_attack).sum())
    found = [f"{missed} of 100 pass"] * max(0, missed - MISSED)
    found += [f"{wrong} of 20 blocked"] * max(0, wrong - WRONG)
    for story in demands.stories:
        found += story_faults(story, weights, prior)
    return found


def story_faults(story: Told, weights: Weights, prior: float) -> Iterator[str]:
    """Yield the turns of a scenario that are not judged as it demands."""
    (block,) = story.matrix.blocks
    mode = Mode.SAFE
    sums = running_sums(block, story.matrix.signals, weights, prior)[0]
    for number, (turn, nats) in enumerate(zip(story.scenario.turns, sums, strict=True), 1):
        mode = mode_for(risk_of(float(nats), prior), weights.modes, mode)
        if is_fault(turn, mode, is_hard=number >= story.hard_turn):
            yield f"{story.scenario.id} turn {number}: {mode.name}"


def is_fault(turn: ScenarioTurn, mode: Mode, *, is_hard: bool) -> bool:
    """Say whether a turn's demand is missed; a veto blocks whatever the mode."""
    expect = turn.expect
    too_low = expect.min_mode is not None and mode < Mode[expect.min_mode] and not is_hard
    too_high = expect.max_mode is not None and mode > Mode[expect.max_mode]
    passes = mode < Mode.CRITICAL and not is_hard
    return too_low or too_high or (expect.passes is not None and passes is not expect.passes)


def varied(weights: Weights, draw: Draw) -> Weights:
    """Return the weights with drawn scales and leak."""
    signals = dict(weights.signals)
    for name in draw.keys() & signals.keys():
        signals[name] = signals[name].model_copy(update={"scale": round(draw[name], 3)})
    leak = {k: round(v, 3) for k, v in draw.items() if k in LeakWeights.model_fields}
    return weights.model_copy(
        update={"signals": signals, "leak": weights.leak.model_copy(update=leak)}
    )


def highest(values: np.ndarray, sources: np.ndarray, above: float) -> float:
    """Return the value that `above` exceed, no source counting for more than `EVEN` records."""
    counts = Counter(sources.tolist())
    shares = np.array([min(1.0, EVEN / counts[source]) for source in sources])
    order = np.argsort(-values)
    reached = np.cumsum(shares[order]) / shares.sum()
    return float(values[order][np.searchsorted(reached, above)])


def measures(heard: Heard, weights: Weights) -> dict[str, float]:
    """Return recall, AUC and AUC within sources, for single texts and for conversations."""
    matrix = heard.matrix
    scores = peaks(matrix, weights, weights.prior_for(SHARE))
    attack, sources = matrix.is_attack, np.array(matrix.sources)
    found, bars = {}, []
    for name, kind in (("single", heard.is_single), ("talk", ~heard.is_single)):
        benign = kind & ~attack
        own = [scores[kind & attack & (sources == s)] for s in sorted(set(sources[kind & attack]))]
        bars.append(highest(scores[benign], sources[benign], SHARE))
        wide = highest(scores[benign], sources[benign], 0.05)
        dev = kind & heard.is_dev
        found |= {
            f"{name} r1": float(np.mean([(v > bars[-1]).mean() for v in own])),
            f"{name} r5": float(np.mean([(v > wide).mean() for v in own])),
            f"{name} auc": float(np.mean([auc(v, scores[benign]) for v in own])),
            f"{name} within": matched(
                scores[dev].tolist(), attack[dev].astype(int).tolist(), sources[dev].tolist()
            ),
        }
    caught = [(scores[attack & (sources == s)] > max(bars)).mean() for s in set(sources[attack])]
    return found | {"at budget": float(np.mean(caught))}


def worth(found: dict[str, float]) -> float:
    """Return one number for a choice of weights; what is caught in talks at 5 % counts most."""
    counts = {"talk r5": 3.0, "single within": 0.5, "talk within": 0.5}
    return sum(counts.get(name, 1.0) * value for name, value in found.items())


def quick_prior(heard: Heard, weights: Weights) -> float:
    """Return the prior that keeps the balanced budget on held-out records, within a hundredth."""
    low, high = LOWEST_PRIOR, HIGHEST_PRIOR
    while high - low > CLOSE:
        middle = (low + high) / 2
        if all(keeps_budget(kind, weights, middle) for kind in heard.even):
            low = middle
        else:
            high = middle
    return low


def keeps_budget(benign: ScoreMatrix, weights: Weights, prior: float) -> bool:
    """Say whether no more are blocked than a split-conformal threshold lets through."""
    bar = weights.modes.odds_of(Mode.CRITICAL)
    blocked = int((peaks(benign, weights, prior) + prior >= bar).sum())
    return blocked <= benign.size - math.ceil((benign.size + 1) * (1 - SHARE) - 1e-9)


def searched(heard: Heard, demands: Demands, start: Weights) -> Iterator[Found]:
    """Yield whatever is better than all before: at random first, later around the best."""
    rng = random.Random(0)
    ranked: list[Found] = []
    for number in range(TRIES):
        if number < TRIES // 3:
            draw = {name: rng.uniform(*ends) for name, ends in SPACE.items()}
        else:
            near = rng.choice(ranked[:BEST])[1]
            draw = {
                name: min(max(near[name] + rng.gauss(0, STEP) * (high - low), low), high)
                for name, (low, high) in SPACE.items()
            }
        weights = varied(start, draw)
        missed = faults(demands, weights, quick_prior(heard, weights))
        value = worth(measures(heard, weights)) - FINE * len(missed)
        insort(ranked, (value, draw, missed), key=lambda item: -item[0])
        if ranked[0][1] is draw:
            yield ranked[0]


def main() -> None:
    """Search, choose, set the budgets, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("held", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    start = load_weights(options.weights)
    dev = development_traces(options.data / "train.jsonl.gz", options.jobs)
    cases = [c for c in chosen(load_dataset([options.held]).cases) if not c.is_attack]
    held = list(record_traces(cases, ControllerConfig(store="memory:"), jobs=options.jobs))
    every = [*dev, *held]
    heard = Heard(
        matrix_of(every, start),
        np.array([not is_talk(trace) for trace in every]),
        np.arange(len(every)) < len(dev),
        (
            matrix_of([trace for trace in even(held) if not is_talk(trace)], start),
            matrix_of([trace for trace in even(held) if is_talk(trace)], start),
        ),
    )
    demands = Demands(
        tuple(told(scenario, start) for scenario in shipped_scenarios()),
        heard_cases(options.data / CASES, start),
    )
    print("before", round(worth(measures(heard, start)), 3), measures(heard, start))
    for value, draw, missed in searched(heard, demands, start):
        weights = varied(start, draw)
        print(f"{value:.3f}", {name: round(scale, 2) for name, scale in draw.items()})
        print({name: round(found, 3) for name, found in measures(heard, weights).items()}, missed)
    points = [budget_for(held, weights, share) for share in SHARES]
    emptied = weights.model_copy(update={"budgets": (points[0].budget,)})
    write_weights(
        with_budgets(emptied, points, "scales chosen on development sources"), options.weights
    )
    for point in points:
        print(point.budget)


if __name__ == "__main__":
    main()
