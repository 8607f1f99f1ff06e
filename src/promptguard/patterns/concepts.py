"""Concepts: what a text is about across languages, told by words with one meaning.

A concept file has one table, `[concepts]`, from a concept's name to the words of one language
that stand for it, between bars (a list would take the parser three times as long); `*` ends a
stem. The same names are used in every language.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from promptguard.errors import DataError
from promptguard.patterns.forms import letters
from promptguard.patterns.languages import codes, language_cache, section_text
from promptguard.patterns.wordlist import WordList

SECTION = "concepts"
Span = tuple[int, int]


class _ConceptFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    concepts: dict[str, str]


class Concepts:
    """The words of every concept in every language given. Immutable once made."""

    def __init__(self, tables: Iterable[Mapping[str, Iterable[str]]]) -> None:
        meanings: dict[str, dict[str, None]] = {}
        for table in tables:
            for concept, words in table.items():
                for word in words:
                    meanings.setdefault(letters(word), {})[concept] = None
        self.names = frozenset(name for names in meanings.values() for name in names)
        # One item per word: a word of several languages or concepts is looked up once.
        self._words = WordList(((word, tuple(names)) for word, names in meanings.items()), letters)

    @classmethod
    def load(cls, folder: Path) -> Concepts:
        """Read every `<language>.toml` of `folder`; raises DataError naming a broken file."""
        files = sorted(folder.glob("*.toml"))
        if not files:
            raise DataError(f"{folder} has no concept files.")
        return cls(parse_concepts(item.read_text(encoding="utf-8"), item.name) for item in files)

    def match(self, folded: str) -> dict[str, tuple[Span, ...]]:
        """Return the concepts of a folded text, each with its places in order.

        Places are those of `letters(folded)`. Takes time linear in the text.
        """
        found: dict[str, list[Span]] = {}
        for hit in self._words.find(letters(folded)):
            for concept in hit.term:
                found.setdefault(concept, []).append((hit.start, hit.end))
        return {concept: tuple(sorted(set(spans))) for concept, spans in found.items()}


@language_cache
def shipped_concepts() -> Concepts:
    """Return the concepts of every known language that has them."""
    return Concepts(
        parse_concepts(section_text(code, SECTION), f"{code}/{SECTION}.toml")
        for code in codes(SECTION)
    )


def parse_concepts(source: str, where: str) -> dict[str, list[str]]:
    """Read one concept file; raises DataError."""
    try:
        table = _ConceptFile.model_validate(tomllib.loads(source)).concepts
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where} is not valid TOML: {error}.") from None
    except ValidationError:
        raise DataError(f"{where} needs one table [concepts] of words between bars.") from None
    found = {
        concept: [word.strip() for word in words.split("|")] for concept, words in table.items()
    }
    for concept, words in found.items():
        if any(not word.strip(" *.") for word in words):
            raise DataError(f"{where}: {concept} has an empty word.")
    return found
