"""One file of patterns: its header, its lists and its entries, checked and spelled out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from promptguard.errors import DataError
from promptguard.patterns.forms import Form, spell_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that is told by wording: patterns in RE2 syntax, or words, and what they mean.

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
        """All its patterns as one."""
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

    def of_kind(self, kind: str, name: str | None = None) -> tuple[Entry, ...]:
        """Return the entries of one kind, and of one name where it is given."""
        return tuple(e for e in self.entries if e.kind == kind and name in (None, e.name))


class _Texts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _EntryTable(_Texts):
    id: str = Field(min_length=1)
    kind: str = Field(min_length=1)
    name: str = ""
    weight: float = 1.0
    pattern: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    directive: str = ""
    asks: bool = False
    with_intents: tuple[str, ...] = Field(default=(), alias="with")
    needs: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    violates: tuple[str, ...] = ()
    innocent: tuple[str, ...] = ()

    @field_validator("pattern", "unless", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else _frozen(value)

    @field_validator("words", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(value.split()) if isinstance(value, str) else _frozen(value)

    @field_validator(
        "with_intents", "needs", "match", "clean", "violates", "innocent", mode="before"
    )
    @classmethod
    def _list(cls, value: object) -> object:
        return _frozen(value)


class _PackTable(_Texts):
    language: str
    version: int
    form: Form = Field(strict=False)
    scripts: tuple[str, ...] = ()
    lists: dict[str, str] = {}
    numbers: dict[str, float] = {}
    entry: tuple[_EntryTable, ...]

    @field_validator("scripts", "entry", mode="before")
    @classmethod
    def _list(cls, value: object) -> object:
        return _frozen(value)


def read_pack(path: Path) -> Pack:
    """Read one file; raises DataError naming what is wrong with it."""
    try:
        return parse_pack(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the rule pack {path}: {error}.") from None


def parse_pack(source: str, where: str) -> Pack:
    """Read a pack from TOML; every fault is a DataError that names the entry."""
    try:
        body = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where} is not valid TOML: {error}.") from None
    try:
        table = _PackTable.model_validate(body)
    except ValidationError as error:
        raise DataError(f"{where}: {_first_fault(error, body)}.") from None
    scripts = frozenset(table.scripts)
    return Pack(
        language=table.language,
        version=table.version,
        form=table.form,
        scripts=scripts,
        entries=tuple(_entry(entry, table, scripts, where) for entry in table.entry),
        numbers=table.numbers,
    )


def joined(patterns: tuple[str, ...]) -> str:
    """Return one pattern that matches where any of `patterns` does."""
    return patterns[0] if len(patterns) == 1 else "|".join(f"(?:{text})" for text in patterns)


def _entry(entry: _EntryTable, pack: _PackTable, scripts: frozenset[str], where: str) -> Entry:
    def spelled(patterns: tuple[str, ...]) -> tuple[str, ...]:
        # One boundary around all alternatives keeps the automaton of many entries small.
        each = patterns if pack.form is Form.FOLDED or not patterns else (joined(patterns),)
        return tuple(spell_out(text, pack.form, pack.lists, scripts) for text in each)

    if not entry.pattern and not entry.words:
        raise DataError(f"{where}: {entry.id} has neither a pattern nor words.")
    if entry.pattern and not (entry.match or entry.violates):
        raise DataError(f"{where}: {entry.id} has no example that must match.")
    fields = entry.model_dump(exclude={"pattern", "unless", "with_intents", "needs"})
    try:
        return Entry(
            language=pack.language,
            patterns=spelled(entry.pattern),
            unless=spelled(entry.unless),
            with_intents=frozenset(entry.with_intents),
            needs=frozenset(entry.needs),
            **fields,
        )
    except KeyError as error:
        raise DataError(f"{where}: {entry.id} names the unknown list {error}.") from None


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _first_fault(error: ValidationError, body: Mapping[str, object]) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    place = [str(part) for part in fault["loc"]]
    entries = body.get("entry")
    if place[:1] == ["entry"] and len(place) > 1 and isinstance(entries, list):
        entry = entries[int(place[1])]
        place[:2] = [str(entry.get("id", f"entry {place[1]}")) if isinstance(entry, dict) else "?"]
    return f"{'.'.join(place)}: {fault['msg']}"
