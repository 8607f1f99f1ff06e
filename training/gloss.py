"""Step 1c: English for the words of 22 languages, as the readers are shown it beside the text.

    python -m training.gloss DATA/parallel.jsonl.gz src/promptguard/data/model/gloss.npz

Words are tied by IBM's first translation model in both directions, as in `training.glossary`; each
word of another language gets the English word it is tied to most. Of Chinese, Japanese and Thai,
which are written without spaces, runs of a few characters take the place of words. Hazards are rare
in everyday sentence pairs, and rare words are tied to the wrong ones: what was written by hand in
`corpus/gloss`, a file a language, goes before what was learned, and the single words of the shipped
concept lists, each for an English word of its concept, stand in for what is in neither.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np

from promptguard.model.gloss import UNSPACED, hash_of, runs_of, spelled, words_of
from training.glossary import concept_terms, distinct_words, ties_of
from training.records import read

# The most characters of a unit that is learned; what is written by hand may be longer.
LEARNED = {"ja": 4, "th": 9, "zh": 4}
WRITTEN = {"th"}  # by hand alone
# A particle and the beginning of the next word are no unit, however common they are together.
STRADDLES = re.compile("[のをがはにでともへや][^\u3040-\u309f]")
PAIRS, LONGEST = 60_000, 22  # sentence pairs of a language, words of a sentence
MOST = 24_000  # words of a language, the most frequent ones
LEAST_COUNT = 2
# Added to p(other | English), so that a rare form of a word is still tied to its English one.
FLOOR = 0.02
# Of a language without spaces: pairs, characters of a sentence, and how often a unit must occur.
UNSPACED_PAIRS, UNSPACED_LONGEST, UNSPACED_COUNT = 30_000, 40, 6
# A unit that mostly stands within one longer unit is a fragment of it.
FRAGMENT = 0.9
# Vietnamese writes a space after each syllable: two of them are mostly one word.
SYLLABIC, PAIR_COUNT = {"vi"}, 4
AUTHORED = Path(__file__).parent / "corpus" / "gloss"
Split = Callable[[str], list[str]]


def grams_of(text: str, longest: int) -> list[str]:
    """Return all runs of up to `longest` characters, each once; other words as they are."""
    found: dict[str, None] = {}
    for run, is_unspaced in runs_of(text):
        if is_unspaced:
            for size in range(1, longest + 1):
                found |= dict.fromkeys(run[at : at + size] for at in range(len(run) - size + 1))
        else:
            found |= dict.fromkeys(words_of(run))
    return list(found)


def splitter_of(texts: Iterable[str], longest: int) -> Split:
    """Return what cuts a text of a language without spaces into units that are common in it."""
    counts = Counter(gram for text in texts for gram in grams_of(text, longest))
    within: dict[str, int] = {}
    for gram, count in counts.items():
        for part in (gram[1:], gram[:-1]):
            within[part] = max(within.get(part, 0), count)
    kept = {
        gram
        for gram, count in counts.items()
        if count >= UNSPACED_COUNT
        and within.get(gram, 0) < FRAGMENT * count
        and not STRADDLES.match(gram)
    }
    return lambda text: [gram for gram in grams_of(text, longest) if gram in kept]


def syllable_splitter(texts: Iterable[str]) -> Split:
    """Return what cuts a text into words and into the pairs of words that are common."""
    counts = Counter(pair for text in texts for pair in set(pairwise(words_of(text))))

    def split(text: str) -> list[str]:
        found = pairwise(words_of(text))
        common = [" ".join(pair) for pair in found if counts[pair] >= PAIR_COUNT]
        return list(dict.fromkeys([*words_of(text), *common]))

    return split


def tied(
    pairs: Iterable[tuple[str, str]], split: Split = distinct_words, longest: int = LONGEST
) -> dict[str, str]:
    """Return the English word of each word of a language, or of each unit that `split` finds."""
    parts = ((distinct_words(left), split(right)) for left, right in pairs)
    ties = ties_of((a, b) for a, b in parts if a and b and len(a) <= LONGEST and len(b) <= longest)
    best: dict[str, tuple[float, str]] = {}
    for (b, a), share in ties.back.items():
        word, tie = ties.other[b], share * (ties.forth.get((a, b), 0.0) + FLOOR)
        if ties.seen_other[word] >= LEAST_COUNT and tie > best.get(word, (0.0, ""))[0]:
            best[word] = (tie, ties.english[a])
    kept = sorted(best, key=lambda word: -ties.seen_other[word])[:MOST]
    return {word: best[word][1] for word in kept}


def learned_of(lang: str, pairs: list[tuple[str, str]], rng: random.Random) -> dict[str, str]:
    """Return what sentence pairs tie the words of a language to."""
    if lang in SYLLABIC:
        return tied(pairs, syllable_splitter(text for _, text in pairs), 2 * LONGEST)
    if lang not in UNSPACED:
        return tied(rng.sample(pairs, min(PAIRS, len(pairs))))
    short = [pair for pair in pairs if len(pair[1]) <= UNSPACED_LONGEST]
    chosen = rng.sample(short, min(UNSPACED_PAIRS, len(short)))
    split = splitter_of([text for _, text in chosen], LEARNED[lang])
    return tied(chosen, split, UNSPACED_LONGEST * LEARNED[lang])


def hazards(lang: str) -> dict[str, str]:
    """Return the single words of a language's concepts, each with an English one."""
    english = {
        name: next((t for t in terms if " " not in t and "*" not in t), None)
        for name, terms in concept_terms("en").items()
    }
    return {
        term.rstrip("*"): word
        for name, terms in concept_terms(lang).items()
        for term in terms
        if (word := english.get(name))
        and " " not in term
        and len(term.rstrip("*")) >= (2 if lang in UNSPACED else 3)
    }


def authored(lang: str, folder: Path = AUTHORED) -> dict[str, str]:
    """Return the words of a language that were written by hand, each with its English."""
    path = folder / f"{lang}.tsv"
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


def table_of(lang: str, learned: dict[str, str]) -> dict[str, str]:
    """Return all words of a language, each with its English."""
    # What the sentence pairs say of a word is nearer than its concept. In Thai, runs of characters
    # that are common in them are often no words, and cut the words that were written apart.
    own = authored(lang) or learned if lang in WRITTEN else learned | authored(lang)
    return {spelled(word): english for word, english in (hazards(lang) | own).items()}


def main() -> None:
    """Learn and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parallel", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read(options.parallel):
        pairs[row["lang"]].append((row["en"], row["text"]))
    rng = random.Random(0)
    tables = {}
    for lang in sorted(pairs):
        learned = learned_of(lang, pairs[lang], rng)
        tables[lang] = table_of(lang, learned)
        print(f"{lang}: {len(tables[lang])} words", flush=True)
    english = sorted({word for table in tables.values() for word in table.values()})
    place = {word: index for index, word in enumerate(english)}
    arrays = {"english": np.frombuffer("\n".join(english).encode(), dtype=np.uint8)}
    for lang, table in tables.items():
        by_hash = {hash_of(word): place[meaning] for word, meaning in table.items()}
        hashes = np.array(sorted(by_hash), dtype=np.uint32)
        arrays[f"{lang}.steps"] = np.diff(hashes, prepend=np.uint32(0)).astype(np.uint32)
        arrays[f"{lang}.english"] = np.array([by_hash[int(h)] for h in hashes], dtype=np.uint16)
    np.savez_compressed(options.out, **arrays)
    print(f"{len(english)} English words, {options.out.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
