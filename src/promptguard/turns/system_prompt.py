"""The part of an application's prompt that the readers see: what it protects and forbids, first.

The readers have room for a few dozen tokens of a system prompt. Its first sentence says what the
application is for; the sentences that forbid or protect something say what a turn must not do.
"""

from __future__ import annotations

import re
from functools import lru_cache

from promptguard.patterns import on_change
from promptguard.patterns.wordlist import shipped_concepts
from promptguard.text.normalize import fold

MAX_CHARS = 600
OPENING_CHARS = 80
READ_CHARS = 20_000
# Chinese and Japanese sentences follow each other without a blank.
_SENTENCE = re.compile(r"(?<=[.!?。！？؟।])\s+|(?<=[。！？])|\n+")
_PROTECTING = ("rule.", "protected.")


# An application sends the same prompt with every request.
@lru_cache(maxsize=256)
def focused(system: str) -> str:
    """Return the opening of `system` and its protecting and forbidding sentences, cut to a bound.

    A prompt that protects nothing stays as it is, up to the bound.
    """
    rules = rules_of(system)
    if not rules:
        return system[:MAX_CHARS]
    # A line end, which the readers take for a blank: a session keeps this text and cuts it up
    # again, and an opening without a full stop must not swallow the first rule then.
    opening = _sentences(system)[0][:OPENING_CHARS].rstrip()
    return f"{opening}\n{rules}"


@lru_cache(maxsize=256)
def rules_of(system: str) -> str:
    """Return the sentences after the first that protect or forbid something, cut to a bound."""
    return " ".join(part for part in _sentences(system)[1:] if _protects(part))[:MAX_CHARS]


# A language that is added later must be found in the prompts that are known already.
for _remembered in (focused, rules_of):
    on_change(_remembered.cache_clear)


def _sentences(system: str) -> list[str]:
    return [part.strip() for part in _SENTENCE.split(system[:READ_CHARS]) if part.strip()]


def _protects(sentence: str) -> bool:
    names = shipped_concepts().match(fold(sentence))
    return any(name.startswith(_PROTECTING) for name in names)
