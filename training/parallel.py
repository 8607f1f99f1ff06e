"""Step 1: choose sentence pairs, English and 22 languages, for aligning the encoders.

    python -m training.parallel DATA/parallel.jsonl.gz .train/parallel.jsonl.gz

Languages with much text are cut to an even share, everyday sentences before interface strings.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import defaultdict
from pathlib import Path

from training.records import read

PER_LANGUAGE = 42_000
INTERFACE = {
    "aosp-settings", "mozilla-android", "mozilla-firefoxlite", "mozilla-www", "wikipedia-android",
    "wikimedia-commons-app", "matrix-react-sdk", "home-assistant", "scratch", "gnome-help",
    "kubernetes-docs", "cldr-emoji",
}  # fmt: skip
INTERFACE_SHARE = 0.2


def main() -> None:
    """Write [language, English, translation], shuffled with a fixed seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    rng = random.Random(0)
    found: dict[tuple[str, bool], list[tuple[str, str, str]]] = defaultdict(list)
    for row in read(options.source):
        key = (row["lang"], row["source"] in INTERFACE)
        found[key].append((row["lang"], row["en"], row["text"]))
    rows = []
    for lang in sorted({lang for lang, _ in found}):
        talk, interface = found[(lang, False)], found[(lang, True)]
        few = int(INTERFACE_SHARE * PER_LANGUAGE)
        kept = rng.sample(interface, min(few, len(interface)))
        kept += rng.sample(talk, min(PER_LANGUAGE - len(kept), len(talk)))
        rows += kept
        print(f"{lang}: {len(kept)}")
    rng.shuffle(rows)
    with gzip.open(options.out, "wt", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
