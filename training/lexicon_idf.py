"""Learn how rare the lexicon's terms are in innocent text, and write only the numbers.

    python -m training.lexicon_idf FOLDER [FOLDER ...]

Reads the records labelled benign of every `*.jsonl` in the folders; a document is what the user
said in one record. idf = ln((1+N)/(1+df)) / ln(1+N) in [0,1], over the term's own language and
over all languages, and the smaller of the two, so that a term that is an ordinary word in another
language counts little.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from promptguard.patterns import codes
from promptguard.signals.wording import Lexicon, lexicon_digest, read_terms
from promptguard.text.read import read_text

OUT = Path(__file__).parent.parent / "src/promptguard/data/lexicon/idf.json"
MIN_DOCUMENTS = 20


def documents(folders: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield (language, what the user said) of every benign record."""
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                if record["label"] == "benign":
                    said = [m["content"] for m in record["messages"] if m["role"] == "user"]
                    yield record["lang"], "\n".join(said)


def rarity(documents_seen: int, documents_with: int) -> float:
    """Return the normalised inverse document frequency."""
    return math.log((1 + documents_seen) / (1 + documents_with)) / math.log(1 + documents_seen)


def learn(
    lexicon: Lexicon, texts: Iterator[tuple[str, str]]
) -> tuple[Counter[str], dict[str, dict[str, float]]]:
    """Return documents per language and the idf of every term that was seen."""
    sizes: Counter[str] = Counter()
    seen: Counter[tuple[str, str, str]] = Counter()
    for language, text in texts:
        sizes[language] += 1
        terms = {hit.term for hit in lexicon.all_hits(read_text(text).folded)}
        seen.update((term.language, term.text, language) for term in terms)
    everywhere = Counter[tuple[str, str]]()
    for (own, text, _), times in seen.items():
        everywhere[own, text] += times
    table: dict[str, dict[str, float]] = {language: {} for language in codes("lexicon")}
    for (own, text), times in sorted(everywhere.items()):
        idf = rarity(sizes.total(), times)
        if sizes[own] >= MIN_DOCUMENTS:
            idf = min(idf, rarity(sizes[own], seen[own, text, own]))
        table[own][text] = round(idf, 3)
    return sizes, table


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    terms = read_terms({})
    sizes, table = learn(Lexicon(terms), documents(options.folders))
    body = {
        "version": 1,
        "provenance": "training/lexicon_idf.py over the project's own benign records",
        "lexicon": lexicon_digest(terms),
        "documents": dict(sorted(sizes.items())),
        "idf": table,
    }
    OUT.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"{sizes.total()} documents, {sum(map(len, table.values()))} of {len(terms)} terms seen")


if __name__ == "__main__":
    main()
