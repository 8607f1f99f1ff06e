"""Letters exchanged for letters: rot13 and its kin, rot47, atbash, and text written backwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase

from promptguard.text.vocabulary import known_words, reads_like_prose

_WORD = re.compile(r"[A-Za-z]+")
_TOKEN = re.compile(r"[A-Za-zÀ-ɏ]+")
_CJK_RUN = re.compile(r"[぀-ヿ一-鿿가-힣][぀-ヿ一-鿿가-힣 、，,]{6,}")
_CJK_PAIRS = re.compile(
    "です|ます|して|くださ|教え|方法|する|なさい|い方|方を"
    "|怎么|如何|什么|可以|告诉|我们|하는|방법|알려|세요|만드|어떻게"
)
# What rot47 makes of lower case letters, then of capitals and of the commonest signs.
_ROT47_SIGN = r"[2-Kp-~!-+\[\]nV\\^]"
_ROT47_RUN = re.compile(rf"(?<!\S){_ROT47_SIGN}++(?:\s{{1,2}}{_ROT47_SIGN}++)+(?!\S)")
_MIN_LETTERS = 8
_MAX_LETTERS = 2000
_LONGEST_WORD = 24


def _shift(by: int) -> dict[int, int]:
    lower = ascii_lowercase[by:] + ascii_lowercase[:by]
    upper = ascii_uppercase[by:] + ascii_uppercase[:by]
    return str.maketrans(ascii_lowercase + ascii_uppercase, lower + upper)


_ROT13 = _shift(13)
_ATBASH = str.maketrans(
    ascii_lowercase + ascii_uppercase, ascii_lowercase[::-1] + ascii_uppercase[::-1]
)
_SHIFTS = tuple((f"caesar{by}", _shift(26 - by)) for by in range(1, 26) if by != 13)
_TABLES = (("rot13", _ROT13), ("atbash", _ATBASH), *_SHIFTS)
_ROT47 = {code: 33 + (code - 33 + 47) % 94 for code in range(33, 127)}


def deciphered(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield (method, plain text, start, end) for each stretch of non-words that hides words."""
    for start, end in _strange_runs(text):
        for method, plain in _undo(text[start:end]):
            yield method, plain, start, end
    for match in _ROT47_RUN.finditer(text):
        plain = match[0].translate(_ROT47)
        if len(plain) >= _MIN_LETTERS and reads_like_prose(plain):
            yield "rot47", plain, match.start(), match.end()
    if not text.isascii():
        yield from _backwards(text)


def _backwards(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield Japanese, Chinese and Korean that reads from the end."""
    for match in _CJK_RUN.finditer(text):
        backwards = match[0].strip()[::-1]
        forward, back = _CJK_PAIRS.findall(match[0]), _CJK_PAIRS.findall(backwards)
        if len(back) >= 2 and len(back) > 2 * len(forward):
            yield "reversed", backwards, match.start(), match.end()


def _strange_runs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches in which no word of four letters or more is a known one."""
    known = known_words()
    # Most texts have hardly a strange word, which their set of words tells at once.
    unknown = set(_TOKEN.findall(text.lower())) - known
    if sum(word.isascii() for word in unknown) < 2:
        return
    start = end = letters = strange = 0
    for match in _TOKEN.finditer(text):
        size = match.end() - match.start()
        is_known = match[0].lower() in known or size == 1 or not match[0].isascii()
        if (is_known and size > 3) or letters > _MAX_LETTERS:
            if letters >= _MIN_LETTERS and strange > 1:
                yield start, end
            letters = strange = 0
            continue
        if letters == 0:
            if is_known:
                continue
            start = match.start()
        end = match.end()
        letters += size
        strange += not is_known
    if letters >= _MIN_LETTERS and strange > 1:
        yield start, end


def _undo(run: str) -> Iterator[tuple[str, str]]:
    """Try each way on the two longest words first: most ways fail there, and cheaply."""
    known = known_words()
    words = (word for word in _WORD.findall(run.lower()) if len(word) <= _LONGEST_WORD)
    probe = " ".join(sorted(words, key=len)[-2:])
    if not known.isdisjoint(probe[::-1].split()) and reads_like_prose(run[::-1]):
        yield "reversed", run[::-1]
        yield "reversed_words", _WORD.sub(lambda word: word[0][::-1], run)
        return
    for method, table in _TABLES:
        if not known.isdisjoint(probe.translate(table).split()):
            plain = run.translate(table)
            if reads_like_prose(plain, 3 if method.startswith("caesar") else 2):
                yield method, plain
                return
