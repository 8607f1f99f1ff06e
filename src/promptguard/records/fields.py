"""Which field of a row holds what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from promptguard.conversation import printable
from promptguard.errors import ConfigError

TEXT_NAMES = ("prompt", "text", "user_input")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMap:
    """Names of fields; a dot goes into an object, as in `request.messages`.

    A row has `messages`, or else one user message in `text`. `labels` translates the label's
    spelling, such as {"1": "attack", "0": "benign"}.
    """

    id: str = "id"
    messages: str = "messages"
    text: str = ""
    source: str = "source"
    license: str = "license"
    lang: str = "lang"
    label: str = "label"
    category: str = "category"
    pair: str = "pair"
    attack_turn: str = "attack_turn"
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, pairs: Iterable[str], labels: Iterable[str] = ()) -> FieldMap:
        """Read `NAME=FIELD` pairs and `SPELLING=LABEL` pairs as given on a command line."""
        chosen = dict(_split(pair) for pair in pairs)
        known = {item.name for item in fields(cls)} - {"labels"}
        unknown = sorted(set(chosen) - known)
        if unknown:
            raise ConfigError(f"Unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}.")
        return replace(cls(), **chosen, labels=dict(_split(pair) for pair in labels))

    def find(self, row: Mapping[str, object], name: str) -> object:
        """Return what `row` holds for `name`, None where it holds nothing."""
        return walk(row, getattr(self, name))

    def find_text(self, row: Mapping[str, object]) -> object:
        """Return the single user message of a row without a list of messages."""
        names = (self.text,) if self.text else TEXT_NAMES
        return next((found for found in (walk(row, n) for n in names) if found is not None), None)

    def label_of(self, row: Mapping[str, object]) -> str:
        """Return the label in the spelling that is used here."""
        found = as_text(self.find(row, "label"))
        return self.labels.get(found, found.strip().lower())


def as_text(value: object) -> str:
    """Return a plain value as text that can be written, empty for what is not plain or none."""
    if isinstance(value, bool):
        # As JSON spells it, so that `labels` can name it.
        return "true" if value else "false"
    return printable(str(value)) if isinstance(value, (str, int, float)) else ""


def walk(row: Mapping[str, object], path: str) -> object:
    """Return what is at a dotted path, None where nothing is."""
    # A column of a table may have a dot in its name.
    if path in row:
        return row[path]
    found: object = row
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _split(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name or not value:
        raise ConfigError(f"{pair!r} is not NAME=VALUE.")
    return name, value
