"""Step 6: fit the table of tokens and neighbouring tokens that is read beside the quick reader.

    python -m training.word_pairs .train/data src/promptguard/data/model .train/scores --share 0.5

One logistic regression per output over hashed tokens and pairs of neighbours, on the messages the
encoder was trained on, drawn with the weights its batches have. `--share` is how much of the
table's logit is added to the reader's, chosen on development sources. `.train/data` holds
`train.jsonl.gz`; the tokenizer is the model's own. Writes `pairs_held.npy` and `pairs_dev.npy`,
what the table adds for those examples, and `pairs_gloss_*.npy`, what it adds for their glosses, for
the calibration. With `--keep` the table stays as it is and only these are written.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer

from promptguard.model.artifact import MESSAGE_OUTPUTS as OUTPUTS
from promptguard.model.network import BUCKETS, WINDOW, WordPairs, buckets, load_word_pairs
from training.records import read
from training.weighing import AUTHORED_BOOST, Row, boost_of

STRENGTH, ROUNDS = 20.0, 200
TOKENS = 4 * WINDOW


def features(texts: list[str], tokenizer: Tokenizer) -> csr_matrix:
    """Return one row of unit length per text."""
    columns, values, ends = [], [], [0]
    for encoded in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
        found = buckets(encoded.ids[:TOKENS] or [0])
        columns.append(found)
        # As `WordPairs.logits` divides when the table is served.
        values.append(np.full(len(found), 1 / math.sqrt(len(found))))
        ends.append(ends[-1] + len(found))
    shape = (len(texts), BUCKETS)
    return csr_matrix((np.concatenate(values), np.concatenate(columns), ends), shape=shape)


def load_messages(path: Path) -> list[Row]:
    """Read the message examples."""
    return [row for row in read(path) if row["task"] == "message"]


def fitted(matrix: csr_matrix, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return one weight per bucket."""
    model = LogisticRegression(C=STRENGTH, solver="liblinear", max_iter=ROUNDS)
    return model.fit(matrix, labels, sample_weight=weights / weights.mean()).coef_[0]


def main() -> None:
    """Fit the table, and write what it adds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--keep", action="store_true", help="keep the table as it is")
    parser.add_argument("--sampled", type=Path, help="the examples that step 5b scored")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    if not options.keep:
        write_table(options, tokenizer)
    pairs = load_word_pairs(options.model / "word_pairs.npz")
    for name in ("held", "dev"):
        rows = list(read((options.sampled or options.data) / f"{name}.jsonl.gz"))
        for key, kind in (("said", "pairs"), ("gloss", "pairs_gloss")):
            found = [added(pairs, row.get(key) or row["said"], tokenizer) for row in rows]
            np.save(options.scores / f"{kind}_{name}.npy", np.stack(found))


def write_table(options: argparse.Namespace, tokenizer: Tokenizer) -> None:
    """Fit every output, quantise, write the table."""
    rows = load_messages(options.data / "train.jsonl.gz")
    matrix = features([" ".join(text for _, text in row["said"]) for row in rows], tokenizer)
    counts = Counter(row["source"] for row in rows)
    weights = np.array(
        [boost_of(row, AUTHORED_BOOST) / math.sqrt(counts[row["source"]]) for row in rows]
    )
    table, units = (
        np.zeros((len(OUTPUTS), BUCKETS), dtype=np.int8),
        np.zeros(len(OUTPUTS), np.float32),
    )
    for index, name in enumerate(OUTPUTS):
        labels = np.array([row["kinds"][index - 1] if index else row["attack"] for row in rows])
        known = labels >= 0
        found = fitted(matrix[known], labels[known], weights[known])
        # A few extreme weights are clipped, so that the others keep their precision in int8.
        unit = np.quantile(np.abs(found[found != 0]), 0.999) / 127
        table[index] = np.clip(np.round(found / unit), -127, 127)
        units[index] = unit * options.share
        print(f"{name}: {int(known.sum())} messages, {int((table[index] != 0).sum())} buckets used")
    np.savez_compressed(options.model / "word_pairs.npz", table=table, units=units)


def added(pairs: WordPairs, said: list[list[str]], tokenizer: Tokenizer) -> np.ndarray:
    """Return the most the table adds to the user turns of an example."""
    texts = [text for role, text in said if role == "user"][-8:] or [""]
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return np.max([pairs.logits(one.ids[:TOKENS]) for one in encoded], axis=0)


if __name__ == "__main__":
    main()
