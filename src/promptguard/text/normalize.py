"""Undoes characters and spellings that hide or disguise what a text says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from promptguard.text.confusables import STYLED, unmix, without_flags
from promptguard.text.invisible import spelled, without_flag
from promptguard.text.origin import DecodedView, Edit, Origin, bounded, edit
from promptguard.text.vocabulary import is_word, segment

_SPACED = re.compile(
    r"(?<![^\W_])"
    r"(?:[^\W\d_](?:[ ._*|/~-]{1,3}|\s{2,3})(?=[^\W\d_](?![^\W_]))){3,}"
    r"[^\W\d_](?![^\W_])"
)
# A sign before every character, blanks and other signs included.
_MARKED = re.compile(
    "|".join(
        rf"(?:{sign}[^{sign}\n]){{8,}}" for sign in (r"\\", "/", r"\|", "~", r"\^", r"\*", "_")
    )
)
_WIDE_GAP = re.compile(r"\s{2,}|\s*[/|]\s*|\s+[._*~-]\s+")
_ANY_SPACE = re.compile(r"\s+")
_LETTER = re.compile(r"[^\W\d_]")
_SIGN = re.compile(r"[^\w\s]|_")
_CJK = re.compile(r"[぀-ヿ㐀-鿿가-힣]")
# Possessive, and begun only where a run of such characters begins: linear on any text.
_LEET = re.compile(r"(?<![\w@$!|])[A-Za-z]*+[0134578@$!|][A-Za-z0134578@$!|]*+(?![\w@$])")
_LEET_SIGNS = "0134578@$!|"
_DIGITS = str.maketrans("0134578@$!|", "oieastbasil")
# A one and its look-alikes stand for an i or for an l, so that both are tried.
_DIGITS_L = str.maketrans("0134578@$!|", "oleastbasll")
_SHORT_LEET = re.compile(r"(?<!\S)(?:[A-Za-z][0134!]|[1!45][A-Za-z]|4)(?!\S)")
_SHORT = {
    "t0": "to", "d0": "do", "n0": "no", "s0": "so", "g0": "go", "m3": "me", "b3": "be",
    "w3": "we", "1s": "is", "1t": "it", "1f": "if", "1n": "in", "4t": "at", "4n": "an",
    "4s": "as", "4": "a",
}  # fmt: skip
_INSIDE = re.compile(
    r"[a-z][0134578@$!|]+[a-z]|(?<![!|])[013457][a-z]{3,}$|[a-z].*[013457@$].*[013457@$]"
)
_LONGEST_WORD = 32
# Hangul fillers and Khmer inherent vowels are no format characters and yet show nothing.
_HIDDEN_SIGNS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_CONTROL_SIGNS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_HIDDEN = re.compile(f"[{_HIDDEN_SIGNS}]+")
_CONTROL = re.compile(f"[{_CONTROL_SIGNS}]+")
_UNSEEN = re.compile(f"[{_HIDDEN_SIGNS}{_CONTROL_SIGNS}\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARK = "\u0300-\u036f\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"
# Ordinary spelling sets at most two marks on a letter, as Vietnamese does.
_THREE_MARKS = re.compile(f"[{_MARK}]{{3}}")
_PILE = re.compile(f"(?<=[{_MARK}]{{2}})[{_MARK}]+")
_MARKS = re.compile("[\u0300-\u036f]+")
# Halfwidth voiced sound marks count as letters, and are combining marks once normalised.
_LONG_UNLETTERED = re.compile(r"(?:[^\w\x00-\x7f]|[\uff9e\uff9f]){31,}")
# A mark is composed with the ASCII letter before it.
_STRETCH = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
_FANCY = re.compile(
    "[\u1d00-\u1d25\u2460-\u24ff\U0001d400-\U0001d7ff\U0001f110-\U0001f189\U0001f1e6-\U0001f1ff]"
)
_FANCY_WORD = re.compile(rf"(?:[^\W\d_]|{_FANCY.pattern})+")
# Formulas and blood groups have fewer in a row, short words are known by the vocabulary.
_MIN_STYLED = 5
_OVERRIDES = re.compile("[\u202d\u202e]")
_SOFT_ONLY = re.compile("[\u00ad\ufeff\ufe00-\ufe0f]+")
_MOST_MARKS = 30
"""How many combining marks may follow each other, as in Unicode's stream-safe format."""


def unspace(text: str) -> str:
    """Join letters that were set apart, where joined they are words (CJK: four or more)."""
    return _SPACED.sub(_joined, text)


def unspacing(text: str) -> Iterator[Edit]:
    """Yield the edits that `unspace` makes."""
    for match in _SPACED.finditer(text):
        joined = _joined(match)
        if joined != match[0]:
            yield match.start(), match.end(), joined


def unmark(text: str) -> str:
    """Drop a sign that was set before every character of a stretch."""
    return _MARKED.sub(_unmarked, text)


def unmarking(text: str) -> Iterator[Edit]:
    """Yield the edits that `unmark` makes."""
    for match in _MARKED.finditer(text):
        if _unmarked(match) != match[0]:
            yield from ((at, at + 1, "") for at in range(match.start(), match.end(), 2))


def unleet(text: str) -> str:
    """Replace digits and signs that stand for letters, where the result is a known word.

    Two-letter words and the lone `4` are touched only where longer words were disguised too.
    """
    if not any(sign in text for sign in _LEET_SIGNS):
        return text
    spelled = _LEET.sub(_spelled, text)
    if spelled == text:
        return text
    return _SHORT_LEET.sub(lambda match: _SHORT.get(match[0].lower(), match[0]), spelled)


def _joined(match: re.Match[str]) -> str:
    run = match[0]
    if len(set(_SIGN.findall(run))) > 1:
        return run
    gap = _ANY_SPACE if _SIGN.search(run) else _WIDE_GAP
    pieces = ["".join(_LETTER.findall(piece)) for piece in gap.split(run)]
    if _CJK.search(run):
        # A short phrase of Korean words of one syllable each is ordinary.
        is_hangul_prose = "가" <= run[0] <= "힣" and not _SIGN.search(run) and len(run) < 12
        return run if is_hangul_prose else "".join(pieces)
    if all(is_word(piece) for piece in pieces if len(piece) > 1) and max(map(len, pieces)) > 2:
        return " ".join(pieces)
    return (segment(pieces[0]) if len(pieces) == 1 else None) or run


def _unmarked(match: re.Match[str]) -> str:
    said = match[0][1::2]
    letters = "".join(_LETTER.findall(said))
    # Columns of a table, escapes, a path: signs between things that are no sentence.
    is_said = 2 * len(letters) > len(said.replace(" ", "")) and len(set(letters)) > 3
    if is_said and (" " in said or _CJK.search(said) or segment(letters)):
        return said
    return match[0]


def _spelled(match: re.Match[str]) -> str:
    token = match[0]
    core = token.rstrip("!|")
    if not 3 <= len(core) <= _LONGEST_WORD or not _INSIDE.search(core):
        return token
    for table in (_DIGITS, _DIGITS_L):
        word = core.translate(table)
        if is_word(word):
            return word + token[len(core) :]
    return token


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text without characters nobody sees, the way back, and what those characters spell.

    `spelled` has its places in the text as it was before.
    """

    text: str
    origin: Origin
    disguises: tuple[str, ...] = ()
    spelled: tuple[DecodedView, ...] = ()


def strip_hidden(text: str) -> Stripped:
    """Remove format, tag and control characters; a lone surrogate becomes U+FFFD.

    A removal is named as a disguise only where the character had no business: joiners within
    emoji or between letters of scripts that use them are ordinary.
    """
    if (text.isascii() and text.isprintable()) or not _UNSEEN.search(text):
        return Stripped(text, Origin())
    # One character for one, so that all places stay as they are.
    seen = _SURROGATE.sub("\ufffd", text)
    runs = [(match[0], *match.span()) for match in _HIDDEN.finditer(seen)]
    found = tuple(spelled([without_flag(seen, *run) for run in runs]))
    is_disguise = bool(found) or any(_is_out_of_place(seen, *run) for run in runs)
    spans = [(start, end) for _, start, end in runs]
    controls = [match.span() for match in _CONTROL.finditer(seen)]
    names = ("zero_width",) * is_disguise + ("control",) * bool(controls)
    kept, origin = edit(seen, ((start, end, "") for start, end in sorted(spans + controls)))
    return Stripped(kept, origin, names, found)


def _is_out_of_place(text: str, run: str, start: int, end: int) -> bool:
    if _OVERRIDES.search(run):
        return True
    # One selector after a letter picks its variant, as Japanese names need.
    if _SOFT_ONLY.fullmatch(run) or (len(run) == 1 and run >= "\U000e0100"):
        return False
    return _joins_nothing(text[start - 1 : start]) and _joins_nothing(text[end : end + 1])


def _joins_nothing(char: str) -> bool:
    """Whether `char` is a letter of a script in which invisible joiners have no use."""
    return char.isalpha() and not "\u0590" <= char <= "\u109f" and not "\u1780" <= char <= "\u18af"


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of the letters; `edits` are the same change, None where the length stays."""

    name: str
    change: Callable[[str], str]
    edits: Callable[[str], Iterator[Edit]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalised:
    """A text without characters nobody sees (`stripped`), in ordinary letters, and for matching.

    `disguises` names what was undone; `is_cut` says whether ordinary letters were too many.
    """

    stripped: Stripped
    plain: str
    folded: str
    disguises: tuple[str, ...]
    is_cut: bool


def normalised(text: str, max_chars: int) -> Normalised:
    """Return a text with hidden characters removed and disguised spellings undone."""
    stripped = strip_hidden(text)
    letters, undone = plain_letters(stripped.text)
    # NFKC makes up to eighteen characters of one.
    plain = letters if len(letters) <= max_chars else bounded(letters, max_chars)[0]
    return Normalised(
        stripped=stripped,
        plain=plain,
        folded=fold(plain),
        disguises=tuple(dict.fromkeys((*stripped.disguises, *undone))),
        is_cut=len(letters) > max_chars,
    )


def plain_letters(text: str) -> tuple[str, tuple[str, ...]]:
    """Return `text` in ordinary letters (readable, case kept) and the names of what was undone."""
    names: list[str] = []
    for step in _steps(text):
        changed = step.change(text)
        if changed != text and (step.name != "styled" or _is_styled(text)):
            names.append(step.name)
        text = changed
    return text, tuple(filter(None, names))


def plain_letters_origins(text: str) -> list[Origin]:
    """Return the ways back from what `plain_letters` returns to `text`, the last one first."""
    origins: list[Origin] = []
    for step in _steps(text):
        if step.edits is None:
            text = step.change(text)
        else:
            text, origin = edit(text, step.edits(text))
            origins.insert(0, origin)
    return origins


def nfkc(text: str) -> str:
    """Return NFKC of `text` in linear time, at most 30 marks on a letter."""
    return _nfkc(_thinned(text))


def fold(text: str) -> str:
    """Return the matching form of a plain text: casefolded, spaces squeezed."""
    return " ".join(text.casefold().split())


def fold_origins(text: str) -> list[Origin]:
    """Return the ways back from what `fold` returns to `text`, the last one first."""
    folded, cased = edit(text, _casefolding(text))
    return [edit(folded, _squeezing(folded))[1], cased]


def _steps(text: str) -> tuple[_Step, ...]:
    return _ASCII_STEPS if text.isascii() else _STEPS


def _thinned(text: str) -> str:
    # What is normalised already has its marks in order, and is not sorted again.
    return text if unicodedata.is_normalized("NFKC", text) else edit(text, _thinning(text))[0]


def _thinning(text: str) -> Iterator[Edit]:
    """Drop all but the first marks of a long pile, which takes quadratic time to normalise."""
    if unicodedata.is_normalized("NFKC", text):
        return
    for match in _LONG_UNLETTERED.finditer(text):
        marks = 0
        for position, char in enumerate(match[0], match.start()):
            if unicodedata.combining(char) or char in "\uff9e\uff9f":
                marks += 1
                continue
            if marks > _MOST_MARKS:
                yield position - marks + _MOST_MARKS, position, ""
            marks = 0
        if marks > _MOST_MARKS:
            yield match.end() - marks + _MOST_MARKS, match.end(), ""


def _composed(text: str) -> str:
    return _nfkc(text.translate(STYLED) if _FANCY.search(text) else text)


def _nfkc(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text)
    # A Thai or Lao vowel stays whole: the readers' tokenizer drops its first half as an accent.
    return plain.replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3")


def _composing(text: str) -> Iterator[Edit]:
    """Yield the edits of `_composed`, as small as the letters allow."""
    for match in _STRETCH.finditer(text):
        whole = _composed(match[0])
        if whole == match[0]:
            continue
        letters = _letters(match[0])
        changed = [_composed(letter) for letter in letters]
        if "".join(changed) != whole:
            yield match.start(), match.end(), whole
            continue
        start = match.start()
        for letter, replacement in zip(letters, changed, strict=True):
            if letter != replacement:
                yield start, start + len(letter), replacement
            start += len(letter)


def _letters(stretch: str) -> list[str]:
    """Cut before every character that cannot be composed with the one before it."""
    starts = [at for at, char in enumerate(stretch) if at == 0 or not _may_compose(char)]
    return [stretch[a:b] for a, b in zip(starts, [*starts[1:], len(stretch)], strict=True)]


def _may_compose(char: str) -> bool:
    is_jamo = "\u1160" <= char <= "\u11ff" or "\uff9e" <= char <= "\uffdc"
    return is_jamo or unicodedata.combining(char) > 0


def _is_styled(text: str) -> bool:
    """Say whether words are written in styled letters.

    Flags are no letters, and single letters are those of emoji, lists, polls and formulas.
    """
    if not _FANCY.search(text):
        return False
    return any(_is_dressed(match[0]) for match in _FANCY_WORD.finditer(without_flags(text)))


def _is_dressed(word: str) -> bool:
    signs = ((sign, _composed(sign)) for sign in _FANCY.findall(word))
    styled = sum(new != sign and bool(_LETTER.search(new)) for sign, new in signs)
    plain = "".join(_LETTER.findall(_composed(word)))
    return styled >= _MIN_STYLED or (styled > 0 and len(plain) > 2 and is_word(plain))


def _unstacked(text: str) -> str:
    return _MARKS.sub("", _PILE.sub("", text)) if _THREE_MARKS.search(text) else text


def _unstacking(text: str) -> Iterator[Edit]:
    if _THREE_MARKS.search(text):
        piles = re.compile(f"{_PILE.pattern}|{_MARKS.pattern}")
        yield from ((*match.span(), "") for match in piles.finditer(text))


def _casefolding(text: str) -> Iterator[Edit]:
    # Casefolding looks at no neighbours, so that it can be told character by character.
    for position, char in enumerate(text):
        folded = char.casefold()
        if folded != char:
            yield position, position + 1, folded


def _squeezing(text: str) -> Iterator[Edit]:
    for match in _ANY_SPACE.finditer(text):
        is_inner = match.start() > 0 and match.end() < len(text)
        if match[0] != " " or not is_inner:
            yield match.start(), match.end(), " " * is_inner


_ASCII_STEPS = (
    _Step("spaced", unmark, unmarking),
    _Step("spaced", unspace, unspacing),
    _Step("leet", unleet),
)
# Long piles of marks take quadratic time to compose, so that they are thinned first. Spelling
# comes last: it is recognised by words, which need plain letters.
_STEPS = (
    _Step("", _thinned, _thinning),
    _Step("styled", _composed, _composing),
    _Step("zalgo", _unstacked, _unstacking),
    _Step("homoglyph", unmix),
    *_ASCII_STEPS,
)
