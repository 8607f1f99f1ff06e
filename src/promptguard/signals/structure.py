"""Who speaks in a user layer: structural features, the section `structure` of every language.

Signal `form`: how a message is written, whatever it says.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Annotated, Any

import re2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.errors import DataError
from promptguard.patterns import Entry, Pack, any_of, language_cache, packs
from promptguard.protocols import TurnContext
from promptguard.signals import SIGNALS
from promptguard.text.vocabulary import bare
from promptguard.verdict import SignalScore

MAX_CHARS = 100_000
"""Of a longer text the beginning and the end are searched, half of the bound each."""

_SAME = str.maketrans("’‘ʼ´", "''''")
_BLANKS = re.compile(r"[^\S\n]+")
_LINE_ENDS = re.compile(r"\s*\n\s*")
_QUOTED = re2.compile(
    r"(?s:```.{8,}?```)|`[^`\n]{16,}`|\"[^\"\n]{16,}\"|(?:^|\W)'[^'\n]{16,}'(?:\W|$)"
    r"|“[^”\n]{16,}”|„[^“”\n]{16,}[“”]|«[^»\n]{16,}»|「[^」\n]{8,}」|『[^』\n]{8,}』"
)

# Letters that somebody set apart or took from other alphabets; the rest comes with copied text.
_DISGUISES = frozenset({"spaced", "styled"})


class Feature(StrEnum):
    """What a user layer can show of its structure."""

    ASSISTANT_VOICE = "assistant_voice"
    CLAIMED_AUTHORITY = "claimed_authority"
    OVERRIDDEN_RULES = "overridden_rules"
    NEW_ROLE = "new_role"
    ROLE_LINES = "role_lines"
    TEMPLATE_TOKENS = "template_tokens"
    CLOSING_DELIMITER = "closing_delimiter"
    EARLIER_AGREEMENT = "earlier_agreement"
    HIDDEN_TEXT = "hidden_text"
    FORCED_ANSWER = "forced_answer"
    SECRECY = "secrecy"


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    provenance: str
    quoted_share: Annotated[float, Field(ge=0, le=1)]
    weights: dict[Feature, Annotated[float, Field(ge=0, le=1)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The features of a layer: those it shows, and those that only its quotations show."""

    stated: tuple[Feature, ...] = ()
    quoted: tuple[Feature, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Patterns per feature, and how much falsehood each feature means when it stands alone."""

    version: int
    quoted_share: float
    weights: Mapping[Feature, float]
    entries: tuple[Entry, ...]
    compiled: Mapping[Feature, Any]

    def find(self, texts: Iterable[str]) -> Findings:
        """Return the features that any of the texts shows, in order of declaration."""
        scans = [scannable(text) for text in texts]
        # The mark keeps the words on both sides of a quotation from becoming neighbours.
        bare_scans = [_QUOTED.sub(' "…" ', scan) for scan in scans]
        found = self._shown(self.compiled, scans)
        # Who shows a sentence does not say it: what only quotations show counts less.
        stated = self._shown(found, bare_scans)
        return Findings(stated=stated, quoted=tuple(f for f in found if f not in stated))

    def shows(self, feature: Feature, text: str) -> bool:
        """Say whether a text shows a feature in its own words, not in a quotation alone."""
        scan = scannable(text)
        found = self.compiled[feature]
        return bool(found.search(scan)) and bool(found.search(_QUOTED.sub(' "…" ', scan)))

    def falsehood(self, found: Findings) -> float:
        """Return 1 - Π(1 - weight): each feature takes its share of the remaining doubt."""
        doubts = [1.0 - self.weights[feature] for feature in found.stated]
        doubts += [1.0 - self.quoted_share * self.weights[feature] for feature in found.quoted]
        return 1.0 - math.prod(doubts)

    def _shown(self, features: Iterable[Feature], scans: list[str]) -> tuple[Feature, ...]:
        return tuple(f for f in features if any(self.compiled[f].search(scan) for scan in scans))


@language_cache
def structure() -> Structure:
    """Return the features with the shipped weights and the patterns of every known language."""
    path = files("promptguard").joinpath("data/structure.toml")
    return parse_structure(path.read_text(encoding="utf-8"), packs("structure"))


def parse_structure(source: str, patterns: Iterable[Pack]) -> Structure:
    """Read weights from TOML for `patterns`; raises DataError naming what is wrong."""
    try:
        body = _File.model_validate(tomllib.loads(source))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"structure.toml is not valid TOML: {error}.") from None
    except ValidationError as error:
        raise DataError(f"structure.toml: {error.error_count()} faults in its form.") from None
    if missing := set(Feature) - set(body.weights):
        raise DataError(f"structure.toml has no weight for {min(missing)}.")
    entries = tuple(entry for pack in patterns for entry in pack.entries)
    return Structure(
        version=body.version,
        quoted_share=body.quoted_share,
        weights=body.weights,
        entries=entries,
        compiled={feature: _compiled(feature, entries) for feature in Feature},
    )


def scannable(text: str) -> str:
    """Return the form the patterns are written for: no case, accents or curly apostrophes,
    blanks squeezed, line ends kept."""
    if len(text) > MAX_CHARS:
        text = text[: MAX_CHARS // 2] + "\n" + text[-MAX_CHARS // 2 :]
    # RE2 reads UTF-8, which has no form for half a surrogate pair.
    plain = bare(text.encode("utf-8", "replace").decode("utf-8").translate(_SAME))
    return _LINE_ENDS.sub("\n", _BLANKS.sub(" ", plain)).strip()


def _compiled(feature: Feature, entries: Iterable[Entry]) -> Any:
    own = [entry for entry in entries if entry.kind == feature]
    if not own:
        raise DataError(f"No language has a pattern for {feature}.")
    return any_of(own)


@SIGNALS.register("form")
def form(ctx: TurnContext) -> SignalScore:
    """Return 1 for a message in the assistant's voice or in disguised letters, else 0."""
    found = sorted(_DISGUISES.intersection(ctx.views.disguises))
    if structure().shows(Feature.ASSISTANT_VOICE, ctx.views.plain):
        found.append("assistant's voice")
    return SignalScore(name="form", score=float(bool(found)), reason=", ".join(found))
