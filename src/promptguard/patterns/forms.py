"""How patterns are spelled: the text forms they are written for, and their RE2 syntax.

Whoever matches prepares the text; a form says how, and what the shorthand of the notation means
in it. `{name}` is a list of the same file in every form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from enum import StrEnum

_LIST = re.compile(r"\{([a-z_]+)\}")
_MAX_NESTING = 4
_ASCII_BOUNDARY = r"\b(?:%s)(?:\b|\W|$)"
_FEW_WORDS = r"(?:[^\s.!?;]+\s){0,4}"
# RE2 knows only ASCII word boundaries, so Cyrillic gets its own.
_BOUNDARIES = {"latin": _ASCII_BOUNDARY, "cyrillic": r"(?:^|[^a-zа-я])(?:%s)"}


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
        text = text.replace("~~~", "(?:[^ ]+ )*").replace("~~", r"(?:[^ \n]+ ){0,8}")
        text = text.replace("~", r"(?:[^ \n]+ ){0,3}")
        return " (?:" + text.replace("@", r"[^ \n]*") + ") "
    text = text.replace("~~~", "(?s:.)*").replace("~~", r"[^\n]{0,20}").replace("~", r"[^\n]{0,8}")
    return text.replace("@", r"[^ \n]*")
