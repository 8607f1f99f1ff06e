"""One text read in every form that is judged: as written, normalised, and decoded.

What a text hides in another notation is undone, and kept where it reads like language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from html import unescape
from string import ascii_lowercase, ascii_uppercase
from urllib.parse import unquote_to_bytes

from promptguard.text.encodings import ENCODINGS, Encoding
from promptguard.text.normalize import normalised, plain_letters, strip_hidden
from promptguard.text.origin import DecodedView, Origin, bounded, through
from promptguard.text.vocabulary import known_words, reads_like_language, reads_like_prose

MAX_CHARS = 1_000_000
_MIN_ESCAPES = 3
_MAX_GAP = 24
_MAX_TOKEN = 64
_CODE_UNIT = re.compile(r"\\[uU]\{?([0-9A-Fa-f]{1,8})\}?")
_BLANK = re.compile(r"\s")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
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
_ATBASH = str.maketrans(
    ascii_lowercase + ascii_uppercase, ascii_lowercase[::-1] + ascii_uppercase[::-1]
)
_ROT47 = {code: 33 + (code - 33 + 47) % 94 for code in range(33, 127)}
MAX_VIEWS = 8
MAX_DEPTH = 40
_MIN_CARRIER = 12
_YIELD = 8
"""Characters decoded in all layers together, per character of the text.

Notations take at least five characters for four, so that layer within layer sums up to four; where
NFKC makes eighteen letters of one, whose two bytes take two and a half, it comes to less than
eight. What is left out at the bound would be hidden by what stands before it.
"""
_DIGIT = re.compile("[0-9]")
_Found = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextViews:
    """`original` as written; `plain` normalised but readable (case kept); `folded` for matching
    (casefolded, confusables mapped, spaces squeezed); `decoded` what disguises hid;
    `disguises` names what was undone on the way to `plain`; `texts` are the distinct texts worth
    judging, the plain one first."""

    original: str
    plain: str
    folded: str
    texts: tuple[str, ...]
    decoded: tuple[DecodedView, ...] = ()
    disguises: tuple[str, ...] = ()
    is_truncated: bool = False


def read_text(text: str, *, max_chars: int = MAX_CHARS) -> TextViews:
    """Return the views of `text`; time and memory are linear in `min(len(text), max_chars)`.

    All of the text is read up to the bound. Of a longer one the beginning and the end are, half
    of the bound each, and `is_truncated` says so. Any string is accepted; decoded views carry
    offsets into it.
    """
    kept, cut = (text, Origin()) if len(text) <= max_chars else bounded(text, max_chars)
    read = normalised(kept, max_chars)
    stripped = read.stripped
    back = (stripped.origin, cut)
    decoded = tuple(_placed(view, back) for view in decode(stripped.text))
    if stripped.spelled:
        invisible = unfold(stripped.spelled, _YIELD * len(kept))
        decoded = merged([*(_placed(view, (cut,)) for view in invisible), *decoded])
    return TextViews(
        original=text,
        plain=read.plain,
        folded=read.folded,
        texts=tuple(dict.fromkeys((read.plain, *(view.text for view in decoded)))),
        decoded=decoded,
        disguises=read.disguises,
        is_truncated=len(text) > max_chars or read.is_cut,
    )


def _placed(view: DecodedView, back: tuple[Origin, ...]) -> DecodedView:
    start, end = through(back, view.start, view.end)
    return view if (start, end) == (view.start, view.end) else replace(view, start=start, end=end)


@dataclass(frozen=True, slots=True)
class Escape:
    """One way of writing a character; `pattern` fits a run of such escapes, `undo` undoes it.

    Where `is_for_letters`, escapes of signs are ordinary (`&#39;`) and only letters count.
    """

    name: str
    hint: str
    pattern: re.Pattern[str]
    undo: Callable[[re.Match[str]], str]
    is_for_letters: bool = True
    space: str = ""


def unescaped(text: str) -> Iterator[_Found]:
    """Yield (method, plain text, start, end) for each stretch in which escapes crowd.

    A stretch is on one line, holds three escapes or more, no two of them far apart, and is
    widened to whole words.
    """
    for escape in ESCAPES:
        for start, end in _stretches(text, escape) if escape.hint in text else ():
            written = text[start:end].replace(escape.space or " ", " ")
            yield escape.name, escape.pattern.sub(escape.undo, written), start, end


def _stretches(text: str, escape: Escape) -> Iterator[tuple[int, int]]:
    start = end = escapes = 0
    for match in escape.pattern.finditer(text):
        # The slice is bounded, or escapes far apart would take quadratic time.
        if escapes and not _is_near(text[end : min(match.start(), end + _MAX_TOKEN)]):
            if escapes >= _MIN_ESCAPES:
                yield _widened(text, start, end)
            escapes = 0
        plain = escape.undo(match)
        count = sum(map(str.isalnum, plain)) if escape.is_for_letters else len(plain)
        if not escapes:
            start = match.start()
        end = match.end()
        escapes += count
    if escapes >= _MIN_ESCAPES:
        yield _widened(text, start, end)


def _is_near(gap: str) -> bool:
    is_one_line = len(gap) <= _MAX_GAP and "\n" not in gap
    return is_one_line or (len(gap) < _MAX_TOKEN and not _BLANK.search(gap))


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of the whole words, as far as words go."""
    before = text[max(0, start - _MAX_TOKEN) : start]
    after = text[end : end + _MAX_TOKEN]
    space = _BLANK.search(after)
    word = len(before) - 1 - max(before.rfind(gap) for gap in " \n\t")
    return start - word, end + (space.start() if space else len(after))


def _percent(run: re.Match[str]) -> str:
    return unquote_to_bytes(run[0]).decode("utf-8", "replace")


def _hexadecimal(run: re.Match[str]) -> str:
    digits = run[0].replace("\\x", "").replace("=", "")
    return bytes.fromhex(digits).decode("utf-8", "replace")


def _octal(run: re.Match[str]) -> str:
    codes = run[0][1:].split("\\")
    return bytes(int(code, 8) & 0xFF for code in codes).decode("utf-8", "replace")


def _code_points(run: re.Match[str]) -> str:
    codes = [int(match[1], 16) for match in _CODE_UNIT.finditer(run[0])]
    # Beyond the basic plane a character is written as two surrogates, which belong together.
    units = "".join(chr(code) for code in codes if code <= 0x10FFFF)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _entities(run: re.Match[str]) -> str:
    return unescape(run[0])


ESCAPES = (
    Escape("percent", "%", re.compile("(?:%[0-9A-Fa-f]{2})+"), _percent, False, "+"),
    Escape("hex", "\\x", re.compile(r"(?:\\x[0-9A-Fa-f]{2})+"), _hexadecimal),
    Escape(
        "unicode",
        "\\",
        re.compile(r"(?:\\u[0-9A-Fa-f]{4}|\\u\{[0-9A-Fa-f]{1,6}\}|\\U[0-9A-Fa-f]{8})+"),
        _code_points,
    ),
    Escape("octal", "\\", re.compile(r"(?:\\[0-3]?[0-7]{2})+"), _octal),
    Escape("html", "&#", re.compile("(?:&#[xX]?[0-9A-Fa-f]{1,6};)+"), _entities),
    # `bytes.fromhex` passes over the line ends of soft breaks.
    Escape("quoted_printable", "=", re.compile("(?:=[0-9A-F]{2}|=\r?\n)+"), _hexadecimal),
)


def _shift(by: int) -> dict[int, int]:
    lower = ascii_lowercase[by:] + ascii_lowercase[:by]
    upper = ascii_uppercase[by:] + ascii_uppercase[:by]
    return str.maketrans(ascii_lowercase + ascii_uppercase, lower + upper)


_ROT13 = _shift(13)
_SHIFTS = tuple((f"caesar{by}", _shift(26 - by)) for by in range(1, 26) if by != 13)
_TABLES = (("rot13", _ROT13), ("atbash", _ATBASH), *_SHIFTS)


def deciphered(text: str) -> Iterator[_Found]:
    """Yield (method, plain text, start, end) for each stretch of non-words that hides words."""
    for start, end in _strange_runs(text):
        for method, plain in _undo_letters(text[start:end]):
            yield method, plain, start, end
    for match in _ROT47_RUN.finditer(text):
        plain = match[0].translate(_ROT47)
        if len(plain) >= _MIN_LETTERS and reads_like_prose(plain):
            yield "rot47", plain, match.start(), match.end()
    if not text.isascii():
        yield from _backwards(text)


def _backwards(text: str) -> Iterator[_Found]:
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


def _undo_letters(run: str) -> Iterator[tuple[str, str]]:
    """Try each way on the two longest words first: most ways fail there, and cheaply."""
    known = known_words()
    words = (word for word in _LATIN_WORD.findall(run.lower()) if len(word) <= _LONGEST_WORD)
    probe = " ".join(sorted(words, key=len)[-2:])
    if not known.isdisjoint(probe[::-1].split()) and reads_like_prose(run[::-1]):
        yield "reversed", run[::-1]
        yield "reversed_words", _LATIN_WORD.sub(lambda word: word[0][::-1], run)
        return
    for method, table in _TABLES:
        if not known.isdisjoint(probe.translate(table).split()):
            plain = run.translate(table)
            # With two dozen shifts tried, chance fits one more easily.
            if reads_like_prose(plain, 3 if method.startswith("caesar") else 2):
                yield method, plain
                return


def decode(text: str, *, max_chars: int | None = None) -> tuple[DecodedView, ...]:
    """Return the texts hidden in `text`, however deep, with their place in `text`.

    A view counts only where the result reads like language. Work is linear: a layer decodes
    each character at most once per notation, and `max_chars` (default eight times the text) bounds
    what all layers yield. More than `MAX_VIEWS` views are told as that many, the last one
    holding the rest.
    """
    budget = _YIELD * len(text) if max_chars is None else max_chars
    return merged(unfold(_one_layer(text), budget))


def unfold(layer: Iterable[DecodedView], budget: int) -> list[DecodedView]:
    """Return those of `layer` that read like language, and all that hides inside any of them."""
    views: list[DecodedView] = []
    for _ in range(MAX_DEPTH):
        kept: list[DecodedView] = []
        for view in layer:
            budget -= len(view.text)
            if budget < 0:
                return views
            if reads_like_language(view.text):
                views.append(view)
            kept.append(view)
        if not kept:
            break
        layer = [_within(outer, view) for outer in kept for view in _one_layer(outer.text)]
    return views


def merged(views: list[DecodedView]) -> tuple[DecodedView, ...]:
    """Return at most `MAX_VIEWS` views, the last one of which holds the rest."""
    if len(views) <= MAX_VIEWS:
        return tuple(views)
    rest = views[MAX_VIEWS - 1 :]
    last = DecodedView(
        method="several",
        text="\n".join(view.text for view in rest),
        start=min(view.start for view in rest),
        end=max(view.end for view in rest),
    )
    return (*views[: MAX_VIEWS - 1], last)


def _one_layer(text: str) -> Iterator[DecodedView]:
    """Yield what reads like language, and carriers: plain characters that may hide more."""
    # The first notation that fits a stretch keeps it; they come with the narrowest alphabet first.
    taken = bytearray(len(text))
    for method, written, start, end in _undone(text):
        if taken.find(1, start, end) >= 0 or written == text[start:end]:
            continue
        # The letters may be in disguise themselves, which the test for language would not see.
        plain = plain_letters(strip_hidden(written).text)[0]
        if _is_carrier(plain) or reads_like_language(plain):
            taken[start:end] = b"\1" * (end - start)
            yield DecodedView(method=method, text=plain, start=start, end=end)
    for method, plain, start, end in deciphered(text):
        if taken.find(1, start, end) < 0:
            yield DecodedView(method=method, text=plain, start=start, end=end)


def _undone(text: str) -> Iterator[_Found]:
    yield from unescaped(text)
    longest = max(map(len, text.split()), default=0)
    digits = len(_DIGIT.findall(text))
    for encoding in ENCODINGS:
        if longest < encoding.min_run or digits < encoding.min_digits:
            continue
        if encoding.hints and not any(hint in text for hint in encoding.hints):
            continue
        yield from _undone_by(encoding, text)


def _undone_by(encoding: Encoding, text: str) -> Iterator[_Found]:
    """Yield what `encoding` gives, pieces with one character between them taken as one text."""
    pieces: list[str] = []
    start = end = 0
    for match in encoding.pattern.finditer(text):
        plain = encoding.undo(match[0])
        if not plain:
            continue
        if pieces and (match.start() - end != 1 or not plain.isprintable()):
            yield encoding.name, " ".join(pieces), start, end
            pieces.clear()
        start = start if pieces else match.start()
        end = match.end()
        pieces.append(plain)
    if pieces:
        yield encoding.name, " ".join(pieces), start, end


def _is_carrier(plain: str) -> bool:
    is_plain = plain.isascii() and plain.replace("\r", "").replace("\n", "").isprintable()
    return is_plain and len(plain) >= _MIN_CARRIER


def _within(outer: DecodedView, inner: DecodedView) -> DecodedView:
    return DecodedView(
        method=f"{outer.method}+{inner.method}", text=inner.text, start=outer.start, end=outer.end
    )
