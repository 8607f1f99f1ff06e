"""Pattern packs: how patterns are spelled, read from a file, and compiled with RE2.

Whoever matches prepares the text; a form says how, and what the shorthand of the notation means
in it. `{name}` is a list of the same file in every form. Every match takes time linear in the
text.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import re2
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from promptguard.errors import DataError

_LIST = re.compile(r"\{([a-z_]+)\}")
# Lists may name lists; a bound keeps one that names itself from growing for ever.
_MAX_NESTING = 4
_ASCII_BOUNDARY = r"\b(?:%s)(?:\b|\W|$)"
_FEW_WORDS = r"(?:[^\s.!?;]+\s){0,4}"
# RE2 knows only ASCII word boundaries, so Cyrillic gets its own.
_BOUNDARIES = {"latin": _ASCII_BOUNDARY, "cyrillic": r"(?:^|[^a-zа-я])(?:%s)"}
_LETTER = re.compile(r"[^\W_]")
_MAX_MEMORY = 64 * 1024 * 1024


class Form(StrEnum):
    """The prepared text a file's patterns are matched on.

    WORDS: ` word word \\n `, sentences ended by a line end, a space on either side of each word.
    CHARACTERS: the same for languages written without spaces, where gaps count characters.
    LINES: lower case without accents, blanks squeezed, line ends kept.
    PLAIN: lower case without accents, all white space squeezed.
    FOLDED: lower case, one character for each of the original's.
    TERMS: no patterns, only lists of words.
    """

    WORDS = "words"
    CHARACTERS = "characters"
    LINES = "lines"
    PLAIN = "plain"
    FOLDED = "folded"
    TERMS = "terms"


def _accents() -> dict[int, str]:
    table = {}
    # Small letters only: the text is casefolded before.
    for code in range(0xDF, 0x250):
        plain = unicodedata.normalize("NFD", chr(code))[0]
        if plain != chr(code) and plain.isascii():
            table[code] = plain
    return table | {ord("ё"): "е", ord("ø"): "o", ord("ł"): "l", ord("œ"): "oe", ord("æ"): "ae"}


_ACCENTS = _accents()


def letters(text: str) -> str:
    """Return `text` casefolded, Latin letters without accents: the spelling of patterns."""
    folded = text.casefold()
    return folded if folded.isascii() else folded.translate(_ACCENTS)


def spell_out(pattern: str, form: Form, lists: Mapping[str, str], scripts: frozenset[str]) -> str:
    """Return `pattern` in RE2 syntax for text of `form`; raises KeyError for an unknown list.

    In WORDS and CHARACTERS `~` is a gap of up to three words (eight characters), `~~` of up to
    eight (twenty), `~~~` of any length, over sentence ends too, `@` the rest of the word, `#` the
    end of the sentence; an apostrophe is a space. In LINES `~` is up to four words
    of one sentence, a space is any blank, and patterns in Latin and Cyrillic script stand at
    word boundaries. In FOLDED a space is any run of blanks.
    """
    if form in (Form.WORDS, Form.CHARACTERS):
        return _canonical(pattern, lists, has_words=form is Form.WORDS)
    text = _with_lists(pattern, lists)
    if form is Form.LINES:
        text = text.replace(" ", r"\s").replace("~", _FEW_WORDS)
        known = (_BOUNDARIES[name] for name in sorted(scripts) if name in _BOUNDARIES)
        return next(known, "(?:%s)") % text
    return text.replace(" ", r"\s+") if form is Form.FOLDED else text


def _with_lists(text: str, lists: Mapping[str, str]) -> str:
    for _ in range(_MAX_NESTING):
        text = _LIST.sub(lambda found: f"(?:{lists[found[1]]})", text)
    return text


def _canonical(pattern: str, lists: Mapping[str, str], *, has_words: bool) -> str:
    squeezed = {name: letters(" ".join(text.split())) for name, text in lists.items()}
    text = _with_lists(letters(pattern).replace("'", " ").replace("’", " "), squeezed)
    text = text.replace("'", " ").replace("’", " ").replace("#", r"\n")
    if has_words:
        # The longest gap first, since each shorter sign is a part of it.
        text = text.replace("~~~", "(?:[^ ]+ )*").replace("~~", r"(?:[^ \n]+ ){0,8}")
        text = text.replace("~", r"(?:[^ \n]+ ){0,3}")
        return " (?:" + text.replace("@", r"[^ \n]*") + ") "
    text = text.replace("~~~", "(?s:.)*").replace("~~", r"[^\n]{0,20}").replace("~", r"[^\n]{0,8}")
    return text.replace("@", r"[^ \n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing recognised by its wording: patterns in RE2 syntax, or words, and what they mean.

    `kind` is what a match means and `name` which one of its kind; the section that reads the
    file defines both. `weight` is a multiplier, a severity or a strength, in the section's own
    terms. A sentence that matches `unless` is excepted. Rules further have the `directive` they
    violate or mention, `asks` where the pattern holds the intent itself, the intents it counts
    `with_intents`, and what else the text must show (`needs`). Examples: `match` and `clean` are
    for the patterns alone, `violates` and `innocent` for the judgement of the whole text.
    """

    id: str
    kind: str
    language: str
    name: str = ""
    weight: float = 1.0
    patterns: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    directive: str = ""
    asks: bool = False
    with_intents: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    match: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    violates: tuple[str, ...] = ()
    innocent: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """All its patterns as one; raises DataError where it has words alone."""
        # An empty pattern would match every text.
        if not self.patterns:
            raise DataError(f"{self.id} needs a pattern; it has only words.")
        return joined(self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One section of one language; `scripts` are those in which its entries can occur."""

    language: str
    version: int
    form: Form
    scripts: frozenset[str]
    entries: tuple[Entry, ...]
    numbers: Mapping[str, float]

    def of_kind(self, kind: str) -> tuple[Entry, ...]:
        """Return the entries of one kind."""
        return tuple(entry for entry in self.entries if entry.kind == kind)


# TOML has lists only, which strict validation takes for no tuple.
_List = Annotated[tuple[str, ...], Field(strict=False)]
_Names = Annotated[frozenset[str], Field(strict=False)]
_OneOrMore = Annotated[_List, BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]
_Words = Annotated[_List, BeforeValidator(lambda v: v.split() if isinstance(v, str) else v)]


class _Texts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _EntryTable(_Texts):
    id: str = Field(min_length=1)
    kind: str = Field(min_length=1)
    name: str = ""
    weight: float = 1.0
    pattern: _OneOrMore = ()
    words: _Words = ()
    unless: _OneOrMore = ()
    directive: str = ""
    asks: bool = False
    with_intents: _Names = Field(default=frozenset(), alias="with")
    needs: _Names = frozenset()
    match: _List = ()
    clean: _List = ()
    violates: _List = ()
    innocent: _List = ()


class _PackTable(_Texts):
    language: str
    version: int
    # Strict validation takes no string for a member of an enum.
    form: Form = Field(strict=False)
    scripts: _Names = frozenset()
    lists: dict[str, str] = {}
    numbers: dict[str, float] = {}
    entry: Annotated[tuple[_EntryTable, ...], Field(strict=False)]


class _ConceptFile(_Texts):
    concepts: dict[str, str]


def read_pack(path: Path) -> Pack:
    """Read one file; raises DataError naming what is wrong with it."""
    try:
        return parse_pack(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the rule pack {path}: {error}.") from None


def parse_pack(source: str, where: str) -> Pack:
    """Read a pack from TOML; every fault is a DataError that names the entry."""
    body = _toml(source, where)
    try:
        table = _PackTable.model_validate(body)
    except ValidationError as error:
        raise DataError(f"{where}: {_first_fault(error, body)}.") from None
    return Pack(
        language=table.language,
        version=table.version,
        form=table.form,
        scripts=table.scripts,
        entries=tuple(_entry(entry, table, where) for entry in table.entry),
        numbers=table.numbers,
    )


def parse_concepts(source: str, where: str) -> dict[str, list[str]]:
    """Read one concept file; raises DataError."""
    try:
        table = _ConceptFile.model_validate(_toml(source, where)).concepts
    except ValidationError:
        raise DataError(f"{where} needs one table [concepts] of words between bars.") from None
    found = {name: [word.strip() for word in words.split("|")] for name, words in table.items()}
    for concept, words in found.items():
        if not all(map(_LETTER.search, words)):
            raise DataError(f"{where}: {concept} has an empty word.")
    return found


def _toml(source: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or lists within lists without end, among others.
        raise DataError(f"{where} is not valid TOML: {error}.") from None


def joined(patterns: tuple[str, ...]) -> str:
    """Return one pattern that matches where any of `patterns` does."""
    return patterns[0] if len(patterns) == 1 else "|".join(f"(?:{text})" for text in patterns)


def _entry(entry: _EntryTable, pack: _PackTable, where: str) -> Entry:
    def spelled(patterns: tuple[str, ...]) -> tuple[str, ...]:
        # One boundary around all alternatives keeps the automaton of many entries small.
        each = patterns if pack.form is Form.FOLDED or not patterns else (joined(patterns),)
        return tuple(spell_out(text, pack.form, pack.lists, pack.scripts) for text in each)

    if not entry.pattern and not entry.words:
        raise DataError(f"{where}: {entry.id} has neither a pattern nor words.")
    if entry.pattern and not (entry.match or entry.violates):
        raise DataError(f"{where}: {entry.id} has no example that must match.")
    if not all(map(_LETTER.search, entry.words)):
        raise DataError(f"{where}: {entry.id} has a word with no letter in it.")
    fields = entry.model_dump(exclude={"pattern", "unless"})
    try:
        patterns, unless = spelled(entry.pattern), spelled(entry.unless)
    except KeyError as error:
        raise DataError(f"{where}: {entry.id} names the unknown list {error}.") from None
    return Entry(language=pack.language, patterns=patterns, unless=unless, **fields)


def _first_fault(error: ValidationError, body: Mapping[str, object]) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    place = [str(part) for part in fault["loc"]]
    entries = body.get("entry")
    if place[:1] == ["entry"] and len(place) > 1 and isinstance(entries, list):
        entry = entries[int(place[1])]
        place[:2] = [str(entry.get("id", f"entry {place[1]}")) if isinstance(entry, dict) else "?"]
    return f"{'.'.join(place)}: {fault['msg']}"


class PatternSet:
    """Many patterns behind one automaton of the words they need; safe to share between threads.

    Only patterns whose words occur are run at all, so that a text costs little however many
    entries there are.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self._filter = re2.Filter()
        for entry in self.entries:
            try:
                self._filter.Add(entry.pattern, _options())
            except re2.error:
                raise _bad_pattern(entry) from None
        if self.entries:
            self._filter.Compile()

    def match(self, text: str) -> tuple[Entry, ...]:
        """Return the entries that match the prepared `text`, in order."""
        if not self.entries:
            return ()
        return tuple(self.entries[index] for index in sorted(self._filter.Match(text) or ()))


def any_of(entries: Iterable[Entry]) -> Any:
    """Return one compiled pattern that matches where any of the entries does."""
    chosen = tuple(entries)
    try:
        return re2.compile(joined(tuple(entry.pattern for entry in chosen)), _options())
    except re2.error:
        # One by one, to name the entry that is at fault.
        for entry in chosen:
            compiled(entry.pattern, entry)
        raise


def compiled(pattern: str, entry: Entry) -> Any:
    """Compile a pattern of `entry`; raises DataError naming it."""
    try:
        return re2.compile(pattern, _options())
    except re2.error:
        raise _bad_pattern(entry) from None


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    # RE2 would write the fault to standard error as well.
    options.log_errors = False
    return options


def _bad_pattern(entry: Entry) -> DataError:
    return DataError(f"{entry.id} has no valid pattern; the notation is in the documentation.")
