"""Step 3: one vocabulary for both readers, with the word pieces of 22 languages.

    python -m training.vocabulary .train/base .train/mpnet PARALLEL .train/data .train/grown

The bases spell a Russian or Korean word letter by letter and do not know Thai at all. Pieces are
learned for each language from the translations and the training texts. A new piece starts where
the English words are that stand beside it in the translations, else at random around the mean of
all rows. Pieces that English would use are left out, so English is read as before.
The thorough base (all-mpnet-base-v2) is given the rows of the same vocabulary, so that a text is
cut into tokens once for both readers.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer, models, trainers

from training.records import read
from training.weighing import Row

Pair = tuple[str, str, str]
WORDS = "embeddings.word_embeddings.weight"
FIRST_WORD = 999  # below are special, unused and reserved rows
# How many pieces a language's own vocabulary has, letters included; Han is read by character.
SIZES = {"th": 2600, "ko": 2600, "ru": 2400, "ar": 2000, "uk": 2000, "ja": 1500}
OTHER_SIZE, LEAST_COUNT = 1400, 15
LEARNED_FROM = 40_000  # texts of a language
ENGLISH_SHARE = 0.05
NEAREST, LEAST_TIE = 4, 0.5  # in nats
# Scripts without spaces come in long runs; a word of over a hundred letters would be unknown.
RUN = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{1,64}"


def texts_by_language(parallel: list[Pair], rows: list[Row]) -> dict[str, list[str]]:
    """Return what is written in each language, each text once."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for lang, english, other in parallel:
        found[lang][other] = None
        found["en"][english] = None
    for row in rows:
        if row["lang"] in found:
            for _, text in row["said"]:
                found[row["lang"]][text[:500]] = None
    rng = random.Random(0)
    return {
        lang: rng.sample(list(texts), min(len(texts), LEARNED_FROM * (3 if lang == "en" else 1)))
        for lang, texts in found.items()
    }


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


def ties(spec: dict, parallel: list[Pair], size: int) -> csr_matrix:
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


def missing_rows(
    spec: dict, names: list[str], words: torch.Tensor, known: dict[str, int], tied: csr_matrix
) -> torch.Tensor:
    """Return one row of usual length for each token of `names`, which `known` does not hold."""
    places = spec["model"]["vocab"]
    at = np.full(len(places), -1)
    for name, row in known.items():
        if name in places:
            at[places[name]] = row
    usual = words[FIRST_WORD:]
    middle, spread = usual.mean(0), usual.std(0)
    generator = torch.Generator().manual_seed(0)
    rows, by_ties = [], 0
    for name in names:
        begin, end = tied.indptr[places[name] : places[name] + 2]
        found, shares = at[tied.indices[begin:end]], tied.data[begin:end]
        shares, found = shares[found >= FIRST_WORD], found[found >= FIRST_WORD]
        order = np.argsort(-shares)[:NEAREST]
        best = list(zip(shares[order].tolist(), found[order].tolist(), strict=True))
        if best and best[0][0] >= LEAST_TIE:
            shares = torch.tensor([share for share, _ in best])
            rows.append((words[[e for _, e in best]] * shares[:, None]).sum(0) / shares.sum())
            by_ties += 1
        else:
            noise = torch.randn(usual.shape[1], generator=generator)
            rows.append(middle + noise * spread)
    print(f"{by_ties} of {len(names)} tokens start at English words")
    # The mean of several rows is shorter than any of them, hence the usual length below.
    made = torch.stack(rows)
    return made / made.norm(dim=1, keepdim=True) * usual.norm(dim=1).mean()


def whole_table(
    spec: dict, words: torch.Tensor, known: dict[str, int], tied: csr_matrix
) -> torch.Tensor:
    """Return the embedding table of the vocabulary: known rows copied, the others begun."""
    names = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].__getitem__)
    absent = [name for name in names if name not in known]
    fresh = dict(zip(absent, missing_rows(spec, absent, words, known, tied), strict=True))
    return torch.stack([words[known[name]] if name in known else fresh[name] for name in names])


def mpnet_places(vocabulary: Path) -> dict[str, int]:
    """Return where the thorough base keeps each token, by the name it has in our vocabulary."""
    names = vocabulary.read_text(encoding="utf-8").splitlines()
    places = {name: index for index, name in enumerate(names)}
    renamed = {"[CLS]": "<s>", "[SEP]": "</s>", "[PAD]": "<pad>"}
    return places | {ours: places[theirs] for ours, theirs in renamed.items()}


def main() -> None:
    """Learn, start the rows, write both grown bases."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("base", "mpnet", "parallel", "data", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    parallel = [(r["lang"], r["en"], r["text"]) for r in read(options.parallel)]
    texts = texts_by_language(parallel, list(read(options.data / "train.jsonl.gz")))
    spec = with_runs(json.loads((options.base / "tokenizer.json").read_text(encoding="utf-8")))
    known = dict(spec["model"]["vocab"])
    spec = grown(spec, chosen_pieces(spec, texts))
    size = len(spec["model"]["vocab"])
    print(f"{size - len(known)} pieces added, {size} tokens in all", flush=True)
    tied = ties(spec, parallel, size)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(spec, ensure_ascii=False)
    (options.out / "tokenizer.json").write_text(text, encoding="utf-8")
    quick = load_file(str(options.base / "model.fp16.safetensors"))
    quick[WORDS] = whole_table(spec, quick[WORDS].float(), known, tied).half()
    save_file(quick, str(options.out / "quick.fp16.safetensors"))
    thorough = load_file(str(options.mpnet / "model.safetensors"))
    # The numbers of the places, stored among the weights though they are none.
    thorough.pop("embeddings.position_ids")
    places = mpnet_places(options.mpnet / "vocab.txt")
    thorough[WORDS] = whole_table(spec, thorough[WORDS], places, tied)
    halved = {name: value.half().contiguous() for name, value in thorough.items()}
    save_file(halved, str(options.out / "thorough.fp16.safetensors"))


if __name__ == "__main__":
    main()
