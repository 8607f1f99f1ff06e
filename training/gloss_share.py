"""Step 7b: how much a gloss counts beside the text itself, for readers that are not trained anew.

    python -m training.gloss_share .train/data src/promptguard/data/model [--write SHARE SCALE]

The shipped readers read held-out messages in other languages and their glosses. Calibrated
log-odds are linear in the logits, so that a share of the logits is the same share of the log-odds:
each share is tried without reading again. Two opinions that differ make a mean that is too timid,
hence a scale. Printed for the quick reader alone and for both: the scale with the least weighted
log loss and that loss, AUC, recall where 5 % of the innocent messages pass, and how many messages
are taken for attacks. `--write` puts both numbers and the table's hash into the manifest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from promptguard.model.artifact import GLOSSARY, open_artifact
from promptguard.model.gloss import load_glossary
from promptguard.model.network import log_odds
from promptguard.model.readers import Readers
from training.calibrate import PARTS, weights_of
from training.records import at_most, read
from training.score import auc, threshold_at

PER_LANGUAGE = 40  # messages of a label
NEARLY_SURE = log_odds(0.9)


def messages(data: Path, model: Path) -> list[dict[str, Any]]:
    """Return held-out messages that have a gloss, languages and labels alike in number."""
    glossary = load_glossary(model / GLOSSARY)
    found = []
    rows = (r for r in read(data / "held.jsonl.gz") if r["task"] == "message" and r["lang"] != "en")
    for row in at_most(rows, 4 * PER_LANGUAGE, lambda row: (row["lang"], row["attack"])):
        text = "\n".join(said for _, said in row["said"])
        gloss = glossary.gloss(text)
        if gloss is not None:
            found.append({"lang": row["lang"], "attack": row["attack"], "texts": (text, gloss)})
    return at_most(found, PER_LANGUAGE, lambda row: (row["lang"], row["attack"]))


def main() -> None:
    """Print what each share gives, or write one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--write", nargs=2, type=float, metavar=("SHARE", "SCALE"))
    options = parser.parse_args()
    path = options.model / "manifest.json"
    if options.write is not None:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        share, scale = options.write
        manifest["gloss"] = {"share": share, "scale": scale}
        digest = hashlib.sha256((options.model / GLOSSARY).read_bytes()).hexdigest()
        manifest["sha256"][GLOSSARY] = digest
        path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        return
    rows = messages(options.data, options.model)
    labels = np.array([row["attack"] for row in rows])
    langs = np.array([row["lang"] for row in rows])
    weights = weights_of(langs, labels)
    artifact = open_artifact(options.model)
    manifest = artifact.manifest.model_copy(update={"gloss": None})
    readers = Readers(replace(artifact, manifest=manifest))
    for blend, thorough in (("alone", False), ("both", True)):
        read_by = [
            [log_odds(r.attack) for r in readers.read_messages(row["texts"], thorough=thorough)]
            for row in rows
        ]
        own, gloss = np.array(read_by).T
        shift = getattr(manifest.calibration["attack"], blend).shift
        for share in PARTS:
            mean = (1 - share) * own + share * gloss - shift

            def odds_at(scale: float, mean: np.ndarray = mean, shift: float = shift) -> np.ndarray:
                return scale * mean + shift

            def loss(scale: float) -> float:
                odds = odds_at(scale)
                return float((weights * (np.logaddexp(0, odds) - labels * odds)).sum())

            scale = float(minimize_scalar(loss, bounds=(0.5, 3.0), method="bounded").x)
            odds = odds_at(scale)
            innocent, attacks = odds[labels == 0], odds[labels == 1]
            bar = threshold_at(innocent, 0.05)
            print(
                f"{blend} {share}: scale {scale:.2f}, loss {loss(scale):.4f} ({loss(1.0):.4f}), "
                f"AUC {auc(attacks, innocent):.3f}, recall at 5 % {(attacks > bar).mean():.3f}, "
                f"above nine tenths {(attacks > NEARLY_SURE).mean():.3f} of the attacks and "
                f"{(innocent > NEARLY_SURE).mean():.3f} of the innocent ones",
                flush=True,
            )
    print(f"{len(rows)} messages in {len(set(langs.tolist()))} languages")


if __name__ == "__main__":
    main()
