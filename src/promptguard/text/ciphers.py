"""Letters exchanged for letters: rot13 and its kin, atbash, and text written backwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_lowercase, ascii_uppercase

from promptguard.text.vocabulary import is_word, known_words

_WORD = re.compile(r"[A-Za-z]+")
_TOKEN = re.compile(r"[A-Za-zÀ-ɏ]+")
_CJK_RUN = re.compile(r"[぀-ヿ一-鿿가-힣][぀-ヿ一-鿿가-힣 、，,]{6,}")
_CJK_PAIRS = re.compile(
    "です|ます|して|くださ|教え|方法|する|なさい|い方|方を"
    "|怎么|如何|什么|可以|告诉|我们|하는|방법|알려|세요|만드|어떻게"
)
_GLUE = re.compile(
    "how|to|the|a|and|you|me|of|in|is|it|for|my|your|all|with|what|this|that|i|on|are|be|give"
    "|tell|como|de|la|el|que|una?|los|wie|der|die|das|man|eine?|und|ich|mir|comment|les?|une|des"
)
_MIN_LETTERS = 8
_SHARE = 0.8
_MAX_LETTERS = 2000


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


def deciphered(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield (method, plain text, start, end) for each stretch of non-words that hides words."""
    for start, end in _strange_runs(text):
        for method, plain in _undo(text[start:end]):
            yield method, plain, start, end
    for match in _CJK_RUN.finditer(text):
        backwards = match[0].strip()[::-1]
        forward, back = _CJK_PAIRS.findall(match[0]), _CJK_PAIRS.findall(backwards)
        if len(back) >= 2 and len(back) > 2 * len(forward):
            yield "reversed", backwards, match.start(), match.end()


def _strange_runs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches in which no word of four letters or more is a known one."""
    known = known_words()
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
    probe = " ".join(sorted(_WORD.findall(run.lower()), key=len)[-2:])
    if not known.isdisjoint(probe[::-1].split()) and _is_text(run[::-1]):
        yield "reversed", run[::-1]
        yield "reversed_words", _WORD.sub(lambda word: word[0][::-1], run)
        return
    for method, table in _TABLES:
        if not known.isdisjoint(probe.translate(table).split()):
            plain = run.translate(table)
            if _is_text(plain, 3 if method.startswith("caesar") else 2):
                yield method, plain
                return


def _is_text(candidate: str, content_words: int = 2) -> bool:
    """Known words throughout, several of them content, and the glue that no sentence lacks."""
    words = _WORD.findall(candidate.lower())
    known = [word for word in words if len(word) == 1 or is_word(word)]
    if sum(map(len, known)) < _SHARE * sum(map(len, words)):
        return False
    content = {word for word in known if len(word) > 2}
    return len(content) >= content_words and any(map(_GLUE.fullmatch, known))
