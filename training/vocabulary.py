"""Step 4: give the base the word pieces that other languages are written in.

    python -m training.vocabulary .train/base .train/parallel.jsonl.gz .train/data .train/grown

The base spells a Russian or Korean word letter by letter and does not know Thai at all. Pieces are
learned for each language from the translations and the training texts. A new piece starts where
the English words are that stand beside it in the translations, else at the mean of the pieces it
used to be cut into. Pieces that English would use are left out, so English is read as before.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer, models, trainers

from training.records import read

WORDS = "embeddings.word_embeddings.weight"
FIRST_WORD = 999  # below are special, unused and reserved rows
# How many pieces a language's own vocabulary has, letters included; Han is read by character.
SIZES = {"th": 2600, "ko": 2600, "ru": 2400, "ar": 1800, "hi": 1300, "bn": 1300, "ja": 1500}
OTHER_SIZE, LEAST_COUNT = 1500, 12
ENGLISH_SHARE = 0.05
NEAREST, LEAST_TIE = 4, 0.5  # in nats
# Scripts without spaces come in long runs; a word of over a hundred letters would be unknown.
RUN = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{1,64}"


def texts_by_language(parallel: list, rows: list) -> dict[str, list[str]]:
    """Return what is written in each language, each text once."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for lang, english, other in parallel:
        found[lang][other] = None
        found["en"][english] = None
    for row in rows:
        for _, text in row["said"]:
            found[row["lang"]][text] = None
    return {lang: list(texts) for lang, texts in found.items()}


def with_runs(spec: dict) -> dict:
    """Return the tokenizer's description with runs of unspaced scripts cut into short ones."""
    split = {
        "type": "Split",
        "pattern": {"Regex": RUN},
        "behavior": "Isolated",
        "invert": False,
    }
    both = {"type": "Sequence", "pretokenizers": [split, spec["pre_tokenizer"]]}
    return spec | {"pre_tokenizer": both, "padding": None, "truncation": None}


def learned(lang: str, texts: list[str], spec: dict) -> list[str]:
    """Return the pieces of one language, commonest merges first."""
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.model = models.WordPiece(unk_token="[UNK]")
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZES.get(lang, OTHER_SIZE),
        min_frequency=LEAST_COUNT,
        special_tokens=["[UNK]"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def is_wanted(piece: str) -> bool:
    """Say whether a piece is made of letters, and of more than one where the letter is Latin."""
    bare = piece.removeprefix("##")
    return all(ch.isalpha() or not ch.isascii() for ch in bare) and not (
        len(bare) == 1 and bare.isascii()
    )


def grown(spec: dict, pieces: list[str]) -> dict:
    """Return the tokenizer's description with pieces added at the end."""
    vocabulary = dict(spec["model"]["vocab"])
    vocabulary |= {piece: len(vocabulary) + index for index, piece in enumerate(pieces)}
    return spec | {"model": spec["model"] | {"vocab": vocabulary}}


def uses(spec: dict, texts: list[str]) -> Counter[int]:
    """Return how often each token is used."""
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    found: Counter[int] = Counter()
    for encoded in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
        found.update(encoded.ids)
    return found


def chosen_pieces(spec: dict, texts: dict[str, list[str]]) -> list[str]:
    """Return the pieces to add: used by other languages, and hardly by English."""
    known = set(spec["model"]["vocab"])
    candidates: dict[str, None] = {}
    for lang in sorted(texts):
        if lang not in ("en", "zh"):
            found = learned(lang, texts[lang], spec)
            candidates |= dict.fromkeys(p for p in found if p not in known and is_wanted(p))
    trial = grown(spec, list(candidates))
    others = uses(trial, [t for lang, part in texts.items() if lang != "en" for t in part])
    english = uses(trial, texts["en"])
    ids = trial["model"]["vocab"]
    return [
        piece
        for piece in candidates
        if others[ids[piece]] >= LEAST_COUNT
        and english[ids[piece]] <= ENGLISH_SHARE * others[ids[piece]]
    ]


def ties(spec: dict, parallel: list, size: int) -> csr_matrix:
    """Return what each token tells of each English token: p(e | token) log(p(e | token) / p(e))."""
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    sides = []
    for place in (2, 1):
        encoded = tokenizer.encode_batch_fast(
            [t[place] for t in parallel], add_special_tokens=False
        )
        sets = [sorted(set(one.ids)) for one in encoded]
        ends = np.cumsum([0, *map(len, sets)])
        columns = np.concatenate([np.array(s, dtype=np.int32) for s in sets])
        shape = (len(sets), size)
        sides.append(csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=shape))
    other, english = sides
    together = (other.T @ english).tocsr()
    of_other = np.asarray(other.sum(0)).ravel()
    of_english = np.asarray(english.sum(0)).ravel()
    rows = np.repeat(np.arange(size), np.diff(together.indptr))
    given = together.data / of_other[rows]
    together.data = given * np.log(given * len(parallel) / of_english[together.indices])
    return together


def new_rows(spec: dict, pieces: list[str], words: torch.Tensor, parallel: list) -> torch.Tensor:
    """Return one row per piece, as long as an ordinary row."""
    whole = grown(spec, pieces)
    size = len(whole["model"]["vocab"])
    tied = ties(whole, parallel, size)
    old = Tokenizer.from_str(json.dumps(spec))
    unknown = old.token_to_id("[UNK]")
    known = words[FIRST_WORD:]
    generator = torch.Generator().manual_seed(0)
    rows, by_ties = [], 0
    for piece in pieces:
        place = whole["model"]["vocab"][piece]
        row = tied.getrow(place)
        keep = [
            (s, e)
            for s, e in zip(row.data, row.indices, strict=True)
            if FIRST_WORD <= e < len(words)
        ]
        best = sorted(keep, reverse=True)[:NEAREST]
        parts = [i for i in pieces_of(old, piece) if i != unknown]
        if best and best[0][0] >= LEAST_TIE:
            shares = torch.tensor([s for s, _ in best])
            rows.append((words[[e for _, e in best]] * shares[:, None]).sum(0) / shares.sum())
            by_ties += 1
        elif parts:
            rows.append(words[parts].mean(0))
        else:
            noise = torch.randn(known.shape[1], generator=generator)
            rows.append(known.mean(0) + noise * known.std(0))
    print(f"{by_ties} of {len(pieces)} pieces start at English words")
    made = torch.stack(rows)
    return made / made.norm(dim=1, keepdim=True) * known.norm(dim=1).mean()


def pieces_of(tokenizer: Tokenizer, piece: str) -> list[int]:
    """Return how the old vocabulary cuts a piece."""
    ids: list[int] = tokenizer.encode(piece.removeprefix("##"), add_special_tokens=False).ids
    return ids


def main() -> None:
    """Learn, start the rows, write the grown base."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("parallel", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    parallel = list(read(options.parallel))
    texts = texts_by_language(parallel, list(read(options.data / "train.jsonl.gz")))
    spec = with_runs(json.loads((options.base / "tokenizer.json").read_text(encoding="utf-8")))
    pieces = chosen_pieces(spec, texts)
    weights = load_file(str(options.base / "model.fp16.safetensors"))
    words = weights[WORDS].float()
    weights[WORDS] = torch.cat([words, new_rows(spec, pieces, words, parallel)]).half()
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(options.out / "model.fp16.safetensors"))
    text = json.dumps(grown(spec, pieces), ensure_ascii=False)
    (options.out / "tokenizer.json").write_text(text, encoding="utf-8")
    shutil.copy(options.base / "config.json", options.out / "config.json")
    print(f"{len(pieces)} pieces added, {len(weights[WORDS])} tokens in all")


if __name__ == "__main__":
    main()
