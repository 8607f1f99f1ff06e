"""What a text hides in another notation: undone, and kept where it reads like language."""

from __future__ import annotations

from collections.abc import Iterator

from promptguard.text.ciphers import deciphered
from promptguard.text.encodings import ENCODINGS
from promptguard.text.views import DecodedView
from promptguard.text.vocabulary import reads_like_language

MAX_DEPTH = 3
MAX_VIEWS = 8
_MIN_CARRIER = 12


def decode(text: str, *, max_chars: int = 20_000) -> tuple[DecodedView, ...]:
    """Return the texts hidden in `text`, nested up to three deep, with their place in `text`.

    A view counts only where the result reads like language. Work is linear: a level decodes
    each character at most once per notation, and `max_chars` bounds what all levels yield.
    More than `MAX_VIEWS` views are told as that many, the last one holding the rest.
    """
    views: list[DecodedView] = []
    layer = [DecodedView(method="", text=text, start=0, end=len(text))]
    budget = max_chars
    for _ in range(MAX_DEPTH):
        found: list[DecodedView] = []
        for outer in layer:
            for view in _one_layer(outer.text):
                budget -= len(view.text)
                if budget < 0:
                    return _merged([*views, *filter(_counts, found)])
                found.append(_within(outer, view) if outer.method else view)
        views += filter(_counts, found)
        layer = found
    return _merged(views)


def _one_layer(text: str) -> Iterator[DecodedView]:
    """Yield what reads like language, and carriers: plain characters that may hide more."""
    taken = bytearray(len(text))
    for encoding in ENCODINGS:
        if encoding.hint and not any(sign in text for sign in encoding.hint):
            continue
        for match in encoding.pattern.finditer(text):
            start, end = match.span()
            if taken.find(1, start, end) >= 0:
                continue
            plain = encoding.undo(match[0])
            if plain and plain != match[0] and (_is_carrier(plain) or reads_like_language(plain)):
                taken[start:end] = b"\1" * (end - start)
                yield DecodedView(method=encoding.name, text=plain, start=start, end=end)
    for method, plain, start, end in deciphered(text):
        if taken.find(1, start, end) < 0:
            yield DecodedView(method=method, text=plain, start=start, end=end)


def _is_carrier(plain: str) -> bool:
    return len(plain) >= _MIN_CARRIER and plain.isascii() and plain.isprintable()


def _counts(view: DecodedView) -> bool:
    return reads_like_language(view.text)


def _within(outer: DecodedView, inner: DecodedView) -> DecodedView:
    return DecodedView(
        method=f"{outer.method}+{inner.method}", text=inner.text, start=outer.start, end=outer.end
    )


def _merged(views: list[DecodedView]) -> tuple[DecodedView, ...]:
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
