"""Step 3b: the examples as token ids, so that the machine that trains reads no text.

    python -m training.tokens .train/data .train/grown .train/tokens \\
        --parallel .train/parallel.jsonl.gz --glossary .train/glossary.json.gz

Writes one file for each set of examples, and the pairs of sentences. Of each turn no more is kept
than the windows show (`promptguard.model.network`): a tenth of the tokens may be dropped in
training, so that a little more is kept than fits.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import lzma
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from promptguard.model.network import (
    ASSISTANT_TOKENS,
    LAST_TOKENS,
    SYSTEM_TOKENS,
    TASK_TOKENS,
    shorten,
)
from training.glossary import Glossary
from training.records import read
from training.weighing import Row

SETS = ("train", "dev", "held")
# Copies of an English prompt with words of other languages; attacks are fewer and get more.
MIXED_ATTACK, MIXED_INNOCENT = 4, 1
MOST_MIXED, MOST_TOKENS, MOST_DOCUMENT, MOST_SCORED, MOST_SENTENCE = 400, 1000, 1200, 1600, 94
SPARE = 1.2  # of what a window shows
SHOWN = {
    "message": {"user": MOST_TOKENS, "assistant": MOST_TOKENS},
    "context": {"user": int(LAST_TOKENS * SPARE), "assistant": int(ASSISTANT_TOKENS * SPARE)},
    "document": {"user": int(TASK_TOKENS * SPARE), "tool": MOST_DOCUMENT},
}
ROLES = ("user", "assistant", "system", "tool")
NAMED = ("task", "source", "lang", "category", "pair", "id")
NUMBERS = ("attack", "session", "authored")
Arrays = dict[str, np.ndarray]
Sentence = tuple[list[int], list[int]]


def open_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer with padding and truncation off."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def ids_of(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the token ids of each text."""
    for begin in range(0, len(texts), 20_000):
        part = texts[begin : begin + 20_000]
        yield from (e.ids for e in tokenizer.encode_batch_fast(part, add_special_tokens=False))


def tokenise(rows: list[Row], tokenizer: Tokenizer, *, is_scored: bool) -> None:
    """Replace the texts of every row by token ids, in place.

    What is scored is read turn by turn too, and kept longer.
    """
    for words, name in (("said", "ids"), ("gloss", "gloss_ids")):
        spoken = [row for row in rows if words in row]
        found = ids_of([text for row in spoken for _, text in row[words]], tokenizer)
        for row in spoken:
            most = {} if is_scored else SHOWN[row["task"]]
            row[name] = [
                (role, kept(next(found), most.get(role, MOST_SCORED), row["task"]))
                for role, _ in row.pop(words)
            ]
    systems = ids_of([row["system"] for row in rows], tokenizer)
    for row in rows:
        row["system_ids"] = shorten(next(systems), int(SYSTEM_TOKENS * SPARE))
        del row["system"]


def kept(ids: list[int], most: int, task: str) -> list[int]:
    """Return what windows show of a turn: the head of what is cut into many, else both ends."""
    return ids[:most] if task in ("message", "document") else shorten(ids, most)


def mix(rows: list[Row], glossary: Glossary, tokenizer: Tokenizer) -> None:
    """Add copies of the English prompts with some or all words in another language, in place."""
    rng = random.Random(3)
    langs = sorted(glossary.words)
    owners, texts = [], []
    for row in rows:
        if row["task"] == "message" and row["lang"] == "en":
            text = "\n".join(said for _, said in row["said"])
            for lang in rng.sample(langs, MIXED_ATTACK if row["attack"] else MIXED_INNOCENT):
                owners.append(row)
                texts.append(glossary.mixed(text, lang, rng.choice((0.4, 0.7, 1.0, 1.0)), rng))
    for row, ids in zip(owners, ids_of(texts, tokenizer), strict=True):
        row.setdefault("mixed", []).append(ids[:MOST_MIXED])
    print(f"{len(texts)} prompts with words of other languages", flush=True)


def parts_of(row: Row) -> Iterator[tuple[int, int, list[int]]]:
    """Yield what a row holds: which field, who speaks, the tokens."""
    for role, ids in row["ids"]:
        yield 0, ROLES.index(role), ids
    for role, ids in row.get("gloss_ids", ()):
        yield 1, ROLES.index(role), ids
    for ids in row.get("mixed", ()):
        yield 2, 0, ids
    if row["system_ids"]:
        yield 3, 0, row["system_ids"]


def laid_down(rows: list[Row]) -> Arrays:
    """Return rows as a few arrays."""
    parts = [(index, *part) for index, row in enumerate(rows) for part in parts_of(row)]
    columns: Arrays = {
        "count": np.array([len(rows)]),
        "owner": np.array([owner for owner, *_ in parts], np.uint32),
        "field": np.array([field for _, field, _, _ in parts], np.uint8),
        "role": np.array([role for _, _, role, _ in parts], np.uint8),
        "length": np.array([len(ids) for *_, ids in parts], np.uint16),
        # The vocabulary has fewer than 65,536 tokens.
        "tokens": np.array([token for *_, ids in parts for token in ids], np.uint16),
        "kinds": np.array([row["kinds"] for row in rows], np.int8),
    }
    for name in NUMBERS:
        columns[name] = np.array([row[name] for row in rows], np.uint8)
    for name in NAMED:
        values = [row[name] for row in rows]
        known = {value: code for code, value in enumerate(dict.fromkeys(values))}
        columns[name] = np.array([known[value] for value in values], np.uint32)
        words = json.dumps(list(known), ensure_ascii=False).encode()
        columns[f"{name}_names"] = np.frombuffer(words, np.uint8)
    return columns


def taken_up(columns: Arrays) -> list[Row]:
    """Return the rows that `laid_down` was given, with token ids as lists."""
    rows: list[Row] = [
        {"ids": [], "system_ids": [], "kinds": tuple(kinds)} for kinds in columns["kinds"].tolist()
    ]
    for name in NAMED:
        names = json.loads(columns[f"{name}_names"].tobytes())
        for row, code in zip(rows, columns[name].tolist(), strict=True):
            row[name] = names[code]
    for name in NUMBERS:
        for row, value in zip(rows, columns[name].tolist(), strict=True):
            row[name] = value
    tokens, begin = columns["tokens"].tolist(), 0
    cells = (columns[name].tolist() for name in ("owner", "field", "role", "length"))
    for owner, field, role, length in zip(*cells, strict=True):
        row, ids = rows[owner], tokens[begin : begin + length]
        begin += length
        if field == 3:
            row["system_ids"] = ids
        elif field == 2:
            row.setdefault("mixed", []).append(ids)
        else:
            row.setdefault(("ids", "gloss_ids")[field], []).append((ROLES[role], ids))
    return rows


def write_arrays(columns: Arrays, path: Path) -> None:
    """Write arrays, compressed."""
    stream = io.BytesIO()
    np.savez(stream, **columns)
    # Much smaller than NumPy's own compression, and what is sent to a GPU counts.
    path.write_bytes(lzma.compress(stream.getbuffer(), preset=1))
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)


def read_arrays(path: Path) -> Arrays:
    """Read arrays that `write_arrays` wrote."""
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes())), allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def load_rows(path: Path) -> list[Row]:
    """Read one set of examples."""
    # Nothing of millions of lists is garbage, and looking through them takes four times as long.
    gc.disable()
    try:
        return taken_up(read_arrays(path))
    finally:
        gc.enable()
        gc.freeze()


def sentences(triples: Iterable[Sequence[str]], tokenizer: Tokenizer) -> Arrays:
    """Return pairs of an English sentence and its translation as token ids."""
    lengths, tokens = [], []
    pairs = list(triples)
    for text in ids_of([side for pair in pairs for side in pair[1:3]], tokenizer):
        lengths.append(min(len(text), MOST_SENTENCE))
        tokens += text[:MOST_SENTENCE]
    return {"length": np.array(lengths, np.uint8), "tokens": np.array(tokens, np.uint16)}


def load_sentences(path: Path) -> list[Sentence]:
    """Read pairs of sentences."""
    columns = read_arrays(path)
    tokens, ends = columns["tokens"], np.cumsum(columns["length"].astype(np.int64))
    parts = [part.tolist() for part in np.split(tokens, ends[:-1])]
    return list(zip(parts[::2], parts[1::2], strict=True))


def main() -> None:
    """Write every set as token ids."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path, help="where the tokenizer is")
    parser.add_argument("out", type=Path)
    parser.add_argument("--parallel", type=Path, required=True)
    parser.add_argument("--glossary", type=Path, required=True)
    parser.add_argument("--most-parallel", type=int, default=10**9, help="pairs of sentences")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = open_tokenizer(options.base)
    for name in SETS:
        rows = list(read(options.data / f"{name}.jsonl.gz"))
        if name == "train":
            mix(rows, Glossary.load(options.glossary), tokenizer)
        tokenise(rows, tokenizer, is_scored=name != "train")
        write_arrays(laid_down(rows), options.out / f"{name}.xz")
    write_arrays(
        sentences(read(options.data / "prompts.jsonl.gz"), tokenizer), options.out / "prompts.xz"
    )
    pairs = list(read(options.parallel))
    drawn = random.Random(1).sample(pairs, min(len(pairs), options.most_parallel))
    write_arrays(sentences(drawn, tokenizer), options.out / "parallel.xz")


if __name__ == "__main__":
    main()
