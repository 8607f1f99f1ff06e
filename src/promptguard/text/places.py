"""Where in the text as written a span of its plain or folded form lies, for highlighting."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from promptguard.text.normalize import (
    fold_origins,
    plain_letters,
    plain_letters_origins,
    strip_hidden,
)
from promptguard.text.origin import bounded, through
from promptguard.text.read import MAX_CHARS


class Form(StrEnum):
    """A form of a text that spans are given in."""

    PLAIN = "plain"
    FOLDED = "folded"


def original_spans(
    text: str,
    spans: Iterable[tuple[int, int]],
    *,
    form: Form = Form.FOLDED,
    max_chars: int = MAX_CHARS,
) -> tuple[tuple[int, int], ...]:
    """Return where `spans` of a form of `text`, as `read_text` gives it, lie in `text` itself.

    Spans are not empty. Where letters were joined or composed, the answer covers all that they
    were made of. Nothing is kept by `read_text` for this; the text is read once more.
    """
    kept, cut = bounded(text, max_chars)
    stripped = strip_hidden(kept)
    plain, shortened = bounded(plain_letters(stripped.text)[0], max_chars)
    # The last change first: a place is taken back step by step.
    back = [shortened, *plain_letters_origins(stripped.text), stripped.origin, cut]
    if form is Form.FOLDED:
        back = [*fold_origins(plain), *back]
    return tuple(through(back, start, end) for start, end in spans)
