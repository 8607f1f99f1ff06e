"""Step 1b: a small dictionary, English to 19 languages, learned from the sentence pairs.

    python -m training.glossary DATA/parallel.jsonl.gz .train/glossary.json.gz

Words are tied by IBM's first translation model in both directions. Labelled English prompts are
also shown with part or all of their words replaced (`Glossary.mixed`): what English teaches the
readers about a request is tied to the words of other languages, for which there is far less
labelled text. Words of the shipped concept lists stand in where the sentence pairs lack one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from promptguard.model.gloss import words_of
from training.records import read

PAIRS, LONGEST = 45_000, 18  # sentence pairs of a language, words of a sentence
ROUNDS, LEAST_COUNT = 6, 3
LEAST_TIE = 0.08  # p(other | English) * p(English | other)
FORMS = 4  # of one word, by likelihood
UNSPACED = {"zh", "ja", "th"}  # words cannot be told by spaces
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
LEAST_STEM = 4
Entries = dict[str, list[tuple[str, float]]]


def distinct_words(text: str) -> list[str]:
    """Return the words of a text in small letters, each once."""
    return list(dict.fromkeys(words_of(text)))


def translation_shares(
    source: np.ndarray, target: np.ndarray, sentence: np.ndarray
) -> dict[tuple[int, int], float]:
    """Return p(target word | source word) by expectation maximisation over co-occurring words."""
    width = int(target.max()) + 1
    links, link = np.unique(source * width + target, return_inverse=True)
    _, place = np.unique(sentence * width + target, return_inverse=True)
    owner = links // width
    shares = np.ones(len(links))
    for _ in range(ROUNDS):
        weight = shares[link]
        # Each word of the translation shares itself out among the English words of its sentence.
        weight = weight / np.bincount(place, weight)[place]
        counts = np.bincount(link, weight, len(links))
        shares = counts / np.bincount(owner, counts)[owner]
    kept = shares > LEAST_TIE
    tied = zip(owner[kept].tolist(), (links[kept] % width).tolist(), strict=True)
    return dict(zip(tied, shares[kept].tolist(), strict=True))


@dataclass(frozen=True)
class Ties:
    """How the words of two languages are tied in sentence pairs, both ways, by index."""

    english: list[str]
    other: list[str]
    forth: dict[tuple[int, int], float]
    back: dict[tuple[int, int], float]
    seen_english: Counter[str]
    seen_other: Counter[str]


def ties_of(sentences: Iterable[tuple[list[str], list[str]]]) -> Ties:
    """Return the ties of sentence pairs that are given as the words of either side."""
    english: dict[str, int] = {}
    other: dict[str, int] = {}
    source, target, sentence = [], [], []
    seen: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for index, (ours, theirs) in enumerate(sentences):
        seen[0].update(ours)
        seen[1].update(theirs)
        for a in ours:
            for b in theirs:
                source.append(english.setdefault(a, len(english)))
                target.append(other.setdefault(b, len(other)))
                sentence.append(index)
    rows, columns, places = np.array(source), np.array(target), np.array(sentence)
    return Ties(
        english=list(english),
        other=list(other),
        forth=translation_shares(rows, columns, places),
        back=translation_shares(columns, rows, places),
        seen_english=seen[0],
        seen_other=seen[1],
    )


def learned(pairs: Iterable[tuple[str, str]]) -> Entries:
    """Return the words of one language for each English word."""
    split = ((distinct_words(left), distinct_words(right)) for left, right in pairs)
    ties = ties_of((a, b) for a, b in split if a and b and max(len(a), len(b)) <= LONGEST)
    found: Entries = defaultdict(list)
    for (a, b), share in ties.forth.items():
        word, meaning = ties.english[a], ties.other[b]
        tie = share * ties.back.get((b, a), 0.0)
        # A word that is the same in both languages would replace nothing.
        if tie >= LEAST_TIE and ties.seen_english[word] >= LEAST_COUNT and word != meaning:
            found[word].append((meaning, round(tie, 3)))
    return {word: sorted(entries, key=lambda e: -e[1])[:FORMS] for word, entries in found.items()}


def concept_terms(lang: str) -> dict[str, list[str]]:
    """Return the shipped terms of each concept in a language."""
    path = files("promptguard").joinpath(f"data/lang/{lang}/concepts.toml")
    if not path.is_file():
        return {}
    concepts = tomllib.loads(path.read_text(encoding="utf-8"))["concepts"]
    return {
        name: [term.strip() for term in terms.replace("\n", " ").split("|") if term.strip()]
        for name, terms in concepts.items()
    }


@dataclass(frozen=True)
class Glossary:
    """English words in other languages."""

    words: dict[str, Entries]
    concepts: dict[str, str]  # English term, or stem with a star, to concept
    terms: dict[str, dict[str, list[str]]]  # language to concept to terms

    @classmethod
    def load(cls, path: Path) -> Glossary:
        """Read what `main` wrote."""
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            return cls(**json.load(stream))

    def of_word(self, word: str, lang: str, rng: random.Random) -> str | None:
        """Return a word of the language for an English one, if any is known."""
        entries = self.words[lang].get(word)
        if entries:
            names = [name for name, _ in entries]
            return rng.choices(names, [tie for _, tie in entries])[0]
        concept = self.concepts.get(word)
        for cut in range(len(word), LEAST_STEM - 1, -1):
            concept = concept or self.concepts.get(word[:cut] + "*")
        terms = self.terms.get(lang, {}).get(concept or "")
        return rng.choice(terms) if terms else None

    def mixed(self, text: str, lang: str, share: float, rng: random.Random) -> str:
        """Return an English text with a share of its known words replaced."""

        def replaced(match: re.Match[str]) -> str:
            if rng.random() >= share:
                return match[0]
            return self.of_word(match[0].lower(), lang, rng) or match[0]

        return WORD.sub(replaced, text)


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
    words = {}
    for lang in sorted(set(pairs) - UNSPACED):
        kept = rng.sample(pairs[lang], min(PAIRS, len(pairs[lang])))
        words[lang] = learned(kept)
        print(f"{lang}: {len(words[lang])} English words", flush=True)
    english = {term: name for name, terms in concept_terms("en").items() for term in terms}
    terms = {
        lang: {
            # A stem is no word that could stand in a text.
            name: [term for term in found if "*" not in term]
            for name, found in concept_terms(lang).items()
        }
        for lang in words
    }
    body = {"words": words, "concepts": english, "terms": terms}
    with gzip.open(options.out, "wt", encoding="utf-8") as stream:
        json.dump(body, stream, ensure_ascii=False)


if __name__ == "__main__":
    main()
