"""Whether a reply gives away the application's prompt: long quotations of it, or its secrets.

Pure functions. A quotation is a run of consecutive words, whatever stands between them; a secret
is a token that looks like a key, or like a code in a sentence that speaks of secrecy. Both are
looked for in the text, in what is encoded in it, and in the text read backwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from promptguard.text.read import read_text

QUOTED_WORDS = 12
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]*)*")
_SECRECY = re.compile(
    r"\b(secret|passwords?|passphrase|passcode|code|pin|token|credentials?|api.?key|key|"
    r"confidential|internal|private|reveal|disclose|share)\b",
    re.IGNORECASE,
)
# Letters, a dash, digits: ABC-1234. Or letters and digits mixed: hunter2, x9Kd01.
_CODE = re.compile(r"\b(?:[A-Za-z]{2,}[-_]?\d{3,}|(?=\w*\d)(?=\w*[A-Za-z])[\w-]{6,})\b")
# What is a key wherever it stands: known prefixes, or long and mixed.
_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|ghp|gho|xox[abp]|AKIA|AIza|glpat|hf)[-_]?[A-Za-z0-9_-]{12,}"
    r"|(?=[\w-]*\d)(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{20,})\b"
)
# Names of standards have the form of codes and are nobody's secret.
_STANDARDS = re.compile(r"(iso|rfc|utf|sha|ieee|http|iec|din|cve|ascii|mp)[-_]?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """What a reply must not repeat: runs of words, and secrets, folded."""

    runs: frozenset[int]
    secrets: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.runs or self.secrets)


def protected_in(system: str, *, spoken: str = "") -> Protected:
    """Return what is to be kept of the application's prompt.

    What the user said, `spoken`, is no secret from them.
    """
    whole = _protected(system)
    if not whole or not spoken:
        return whole
    known = spoken.casefold()
    return Protected(
        runs=whole.runs.difference(_runs(spoken)),
        secrets=frozenset(token for token in whole.secrets if token not in known),
    )


def leak_in(text: str, protected: Protected) -> str:
    """Return in words what `text` gives away, empty where it gives nothing away."""
    if not protected:
        return ""
    views = read_text(text)
    for reading in (text, text[::-1], *views.texts):
        folded = reading.casefold()
        if any(secret in folded for secret in protected.secrets):
            return "a secret of the system prompt"
        if protected.runs and not protected.runs.isdisjoint(_runs(reading)):
            return f"{QUOTED_WORDS} words of the system prompt"
    return ""


# An application sends the same prompt with every request.
@lru_cache(maxsize=256)
def _protected(system: str) -> Protected:
    return Protected(
        runs=frozenset(_runs(system)),
        secrets=frozenset(token.casefold() for token in _tokens(system)),
    )


def _tokens(system: str) -> Iterator[str]:
    yield from _KEY.findall(system)
    for sentence in _SENTENCE.findall(system):
        if _SECRECY.search(sentence):
            yield from (code for code in _CODE.findall(sentence) if not _STANDARDS.match(code))


def _runs(text: str) -> Iterator[int]:
    """Yield a hash of every run of QUOTED_WORDS words."""
    words = [word.casefold() for word in _WORD.findall(text)]
    for at in range(len(words) - QUOTED_WORDS + 1):
        yield hash(tuple(words[at : at + QUOTED_WORDS]))
