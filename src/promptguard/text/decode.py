"""What a text hides in another notation: undone, and kept where it reads like language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from promptguard.text.ciphers import deciphered
from promptguard.text.encodings import ENCODINGS, Encoding
from promptguard.text.escapes import unescaped
from promptguard.text.normalize import dress_down, strip_hidden
from promptguard.text.views import DecodedView
from promptguard.text.vocabulary import reads_like_language

MAX_VIEWS = 8
MAX_DEPTH = 40
_MIN_CARRIER = 12
_YIELD = 4
"""Characters decoded in all layers together, per character of the text.

Notations take at least four characters for three, so that layer within layer sums up to three.
"""

_DIGIT = re.compile("[0-9]")
_Found = tuple[str, str, int, int]


def decode(text: str, *, max_chars: int | None = None) -> tuple[DecodedView, ...]:
    """Return the texts hidden in `text`, however deep, with their place in `text`.

    A view counts only where the result reads like language. Work is linear: a layer decodes
    each character at most once per notation, and `max_chars` (default four times the text) bounds
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
    taken = bytearray(len(text))
    for method, written, start, end in _undone(text):
        if taken.find(1, start, end) >= 0 or written == text[start:end]:
            continue
        # The letters may be in disguise themselves, which the test for language would not see.
        plain = dress_down(strip_hidden(written).text)[0]
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
