"""Step 7: blend and calibrate the readers on text they did not learn from; write the manifest.

    python -m training.calibrate .train/scores src/promptguard/data/model --version V

`.train/scores` holds the raw logits of both readers on held-out and development examples, as the
`score` stage of training writes them; what the table of word pairs adds is added here, and what
both say of the gloss of a text in another language is mixed in. Each record weighs so that every
source and label counts alike. Coefficients are held at or above zero: no reader's word is ever
turned round. How much the thorough reader counts beside the quick one is fitted on the development
sources, none of which either has learned from, and on held-out records in other languages than
English, of which these have few, each half; the scale on all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from promptguard.model.artifact import MESSAGE_OUTPUTS, OUTPUTS
from training.score import auc, threshold_at

FILES = (
    "quick.onnx", "thorough.onnx", "thorough.npz", "tokenizer.json", "word_pairs.npz", "gloss.npz",
)  # fmt: skip
BENIGN_ABOVE = 0.02
PARTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # of the logits, that a gloss may get
# Below it a gloss finds no further attack among the held-out messages, whatever its share is, and
# much ordinary text lies there: reading it twice would double what it costs. From -5 on would do
# for these; an attack in words that the reader does not know at all may lie a little lower.
FROM_LOGIT = -6.0
Scores = dict[str, np.ndarray]
LEAST_OF_A_SOURCE = 50  # a handful of records must not decide a proportion
BASES = {
    "quick": "all-MiniLM-L6-v2 with Han characters and word pieces of 22 languages added",
    "thorough": "all-mpnet-base-v2 with the same vocabulary",
}


def weights_of(sources: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return weights under which sources count alike within a label, and labels alike."""
    keys = list(zip(sources.tolist(), labels.tolist(), strict=True))
    counts = Counter(keys)
    per_label = Counter(label for _, label in counts)
    return np.array([0.5 / per_label[label] / counts[(s, label)] for s, label in keys])


def fitted(values: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return coefficients (at least zero) and the shift with the least weighted log loss."""

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        odds = values @ parameters[:-1] + parameters[-1]
        off = weights * (1 / (1 + np.exp(-odds)) - labels)
        value = (weights * (np.logaddexp(0, odds) - labels * odds)).sum()
        return float(value), np.append(values.T @ off, off.sum())

    start = np.append(np.full(values.shape[1], 0.5), 0.0)
    bounds = [(0.0, None)] * values.shape[1] + [(None, None)]
    found: np.ndarray = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    return found


def threshold(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the log-odds that a small share of the innocent weight exceeds."""
    order = np.argsort(-values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, BENIGN_ABOVE)])


def blended(
    values: np.ndarray,
    labels: np.ndarray,
    sources: np.ndarray,
    halves: list[np.ndarray],
    thorough: float | None,
) -> np.ndarray:
    """Return the blend of both readers: its proportion from two sets of examples that count alike,
    its scale and shift from all. `thorough` is that reader's part of it where it is given."""
    # The quick reader alone, where no half of the examples holds both labels.
    ratio = np.array([1.0, 0.0])
    keys = list(zip(sources.tolist(), labels.tolist(), strict=True))
    sizes = Counter(keys)
    is_large = np.array([sizes[key] >= LEAST_OF_A_SOURCE for key in keys])
    weights = np.zeros(len(labels))
    for half in halves:
        chosen = half & is_large
        if len(set(labels[chosen].tolist())) == 2:
            weights[chosen] += weights_of(sources[chosen], labels[chosen])
    if weights.any():
        found = fitted(values, labels, weights)[:2]
        ratio = found / found.sum() if found.sum() else ratio
    if thorough is not None:
        ratio = np.array([1 - thorough, thorough])
    one = fitted((values @ ratio)[:, None], labels, weights_of(sources, labels))
    return np.array([one[0] * ratio[0], one[0] * ratio[1], one[1]])


def columns(name: str, held: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return one output's logits (quick, thorough), labels, sources, and which rows they are."""
    if name in MESSAGE_OUTPUTS:
        index = MESSAGE_OUTPUTS.index(name)
        is_task = held["task"] == "message"
        labels = held["attack"] if not index else held["kinds"][:, index - 1]
        head = "message"
    elif name == "document":
        is_task, labels, head, index = held["task"] == "document", held["attack"], "document", 0
    else:
        index, head = ("turn", "session").index(name), "context"
        is_task = (held["task"] == "context") | (held["task"] == "message")
        labels = held["session"] if index else held["attack"]
    # A label of -1 means that nobody knows.
    kept = is_task & (labels >= 0)
    both = (held[f"{reader}_{head}"].reshape(len(kept), -1) for reader in ("quick", "thorough"))
    values = np.stack([logits[kept, index] for logits in both], 1)
    return values, labels[kept], held["source"][kept], kept


def load_part(folder: Path, name: str) -> Scores:
    """Return the logits of one set of examples, those of the table of word pairs added."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        part = {key: stored[key] for key in stored.files}
    for head, pairs in (("message", "pairs"), ("gloss_message", "pairs_gloss")):
        part[f"quick_{head}"] = part[f"quick_{head}"] + np.load(folder / f"{pairs}_{name}.npy")
    return part


def with_gloss(scores: Scores, share: float) -> Scores:
    """Return the scores with the gloss mixed in, as the readers do; without one nothing changes."""
    mixed = {}
    for head, outputs in (("message", 1), ("context", 2)):
        # The quick reader's own reading decides whether a gloss is read at all.
        own = scores[f"quick_{head}"][:, :outputs].max(axis=1, keepdims=True)
        part = np.where(own >= FROM_LOGIT, share, 0.0)
        for reader in ("quick", "thorough"):
            logits, gloss = scores[f"{reader}_{head}"], scores[f"{reader}_gloss_{head}"]
            mixed[f"{reader}_{head}"] = (1 - part) * logits + part * gloss
    return scores | mixed


def load_scores(folder: Path) -> Scores:
    """Return the logits and labels of the held-out and the development examples together."""
    parts = []
    for name in ("held", "dev"):
        part = load_part(folder, name)
        parts.append(part | {"is_dev": np.full(len(part["task"]), name == "dev")})
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def gloss_share(held: Scores) -> float:
    """Return the share of the logits that a gloss gets: the one with the least loss on messages."""
    picked = glossed(held, "message")
    labels = held["attack"][picked]
    # Languages count alike, since a gloss is good in one and poor in another.
    weights = weights_of(held["lang"][picked], labels)
    losses = {}
    for share in PARTS:
        values = logits(with_gloss(held, share), "message", picked)
        found = fitted(values, labels, weights)
        odds = values @ found[:-1] + found[-1]
        losses[share] = round(float((weights * (np.logaddexp(0, odds) - labels * odds)).sum()), 4)
    print(f"{int(picked.sum())} messages with a gloss, loss by its share: {losses}")
    return min(losses, key=lambda share: losses[share])


def glossed(held: Scores, task: str) -> np.ndarray:
    """Return which held-out examples of a task have a gloss."""
    has_gloss = (held[f"quick_gloss_{task}"] != held[f"quick_{task}"]).any(1)
    found: np.ndarray = has_gloss & (held["task"] == task) & ~held["is_dev"]
    return found


def logits(scores: Scores, task: str, picked: np.ndarray) -> np.ndarray:
    """Return both readers' logits of an attack, a column each."""
    return np.stack([scores[f"{reader}_{task}"][picked, 0] for reader in ("quick", "thorough")], 1)


def report_shares(held: Scores, calibration: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print what each share of the gloss gives, by the blend that is written."""
    for task, output in (("message", "attack"), ("context", "turn")):
        picked = glossed(held, task)
        is_attack = held["attack"][picked] == 1
        both = calibration[output]["both"]
        for share in PARTS:
            values = logits(with_gloss(held, share), task, picked)
            odds = values @ np.array([both["quick"], both["thorough"]])
            attacks, innocent = odds[is_attack], odds[~is_attack]
            at1, at5 = ((attacks > threshold_at(innocent, part)).mean() for part in (0.01, 0.05))
            print(
                f"{task} {share}: AUC {auc(attacks, innocent):.3f}, "
                f"recall at 1 % {at1:.3f}, at 5 % {at5:.3f}"
            )


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--data", type=Path, required=True, help="manifest of the prepared data")
    parser.add_argument("--gloss", type=float, help="its share, else the one with the least loss")
    parser.add_argument("--scale", type=float, default=1.0, help="of what has a gloss, if kept")
    parser.add_argument("--keep", nargs="+", default=[], help="outputs that stay as they are")
    parser.add_argument("--thorough", type=float, help="its part of turn and session, else fitted")
    options = parser.parse_args()
    unmixed = load_scores(options.scores)
    gloss = gloss_share(unmixed) if options.gloss is None else options.gloss
    held = with_gloss(unmixed, gloss)
    halves = [held["is_dev"], ~held["is_dev"] & (held["lang"] != "en")]
    manifest: dict[str, Any] = {
        "name": "promptguard-readers",
        "version": options.version,
        "license": "Apache-2.0",
        "base": BASES,
        "sha256": {n: hashlib.sha256((options.model / n).read_bytes()).hexdigest() for n in FILES},
        "calibration": {},
        "thresholds": {},
        "data": json.loads(options.data.read_text())["sources"],
        "gloss": {"share": gloss, "scale": options.scale, "from_logit": FROM_LOGIT},
    }
    path = options.model / "manifest.json"
    before = json.loads(path.read_text(encoding="utf-8")) if options.keep else {}
    for name in OUTPUTS:
        if name in options.keep:
            for part in ("calibration", "thresholds"):
                manifest[part][name] = before[part][name]
            continue
        values, labels, sources, kept = columns(name, held)
        weights = weights_of(sources, labels)
        alone = fitted(values[:, :1], labels, weights)
        part = options.thorough if name in ("turn", "session") else None
        both = blended(values, labels, sources, [half[kept] for half in halves], part)
        manifest["calibration"][name] = {
            "alone": {"quick": round(alone[0], 4), "shift": round(alone[1], 4)},
            "both": {
                "quick": round(both[0], 4),
                "thorough": round(both[1], 4),
                "shift": round(both[2], 4),
            },
        }
        odds = values[:, 0] * alone[0] + alone[1]
        innocent = labels == 0
        bar = threshold(odds[innocent], weights[innocent])
        manifest["thresholds"][name] = round(float(1 / (1 + np.exp(-bar))), 4)
        print(f"{name}: {len(labels)} examples, alone {alone.round(3)}, both {both.round(3)}")
    report_shares(unmixed, manifest["calibration"])
    path.write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
