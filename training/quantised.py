"""What int8 costs: AUC of the shipped model against the same network in fp32, on held-out text.

python -m training.export WEIGHTS BASE src/promptguard/data/model --keep-fp32 .train/fp32.onnx
python -m training.quantised .train/data/held.jsonl.gz .train/fp32.onnx
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np

from promptguard.model.artifact import Artifact, bundled
from promptguard.model.encoder import LocalEncoder
from training.records import read
from training.score import auc

SAMPLE = 1500


def main() -> None:
    """Print both AUCs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("held", type=Path)
    parser.add_argument("fp32", type=Path)
    options = parser.parse_args()
    rows = [row for row in read(options.held) if row["task"] == "message"]
    random.Random(0).shuffle(rows)
    rows = rows[:SAMPLE]
    is_attack = np.array([bool(row["attack"]) for row in rows])
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder)
        shutil.copy(options.fp32, plain / "model.onnx")
        for name in ("tokenizer.json", "word_pairs.npz"):
            shutil.copy(bundled().folder / name, plain / name)
        encoders = {
            "fp32": LocalEncoder(Artifact(folder=plain, manifest=bundled().manifest)),
            "int8": LocalEncoder(),
        }
        for name, encoder in encoders.items():
            scores = np.array([encoder.read_messages([r["said"][0][1]])[0].attack for r in rows])
            print(f"{name} AUC {auc(scores[is_attack], scores[~is_attack]):.4f}")


if __name__ == "__main__":
    main()
