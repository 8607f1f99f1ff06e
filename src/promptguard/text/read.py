"""One text read in every form that is judged."""

from __future__ import annotations

from promptguard.errors import InputError
from promptguard.text.decode import decode
from promptguard.text.normalize import Stripped, dress_down, fold, strip_hidden
from promptguard.text.origin import Origin, delete
from promptguard.text.views import DecodedView, TextViews
from promptguard.text.vocabulary import reads_like_language

MAX_CHARS = 20_000


def read_text(text: str, *, max_chars: int = MAX_CHARS) -> TextViews:
    """Return the views of `text`; time is linear in `min(len(text), max_chars)`.

    Of a longer text the beginning and the end are read, half of the bound each, and
    `is_truncated` says so. Any string is accepted; decoded views carry offsets into it.
    """
    if max_chars < 2:
        raise InputError("max_chars must be at least 2.")
    kept, cut_origin = _bounded(text, max_chars)
    stripped = strip_hidden(kept)
    origin = stripped.origin.after(cut_origin)
    plain, undone = dress_down(stripped.text)
    views = tuple(_placed(view, origin) for view in decode(stripped.text, max_chars=max_chars))
    return TextViews(
        original=text,
        plain=plain[:max_chars],
        folded=fold(plain[:max_chars]),
        decoded=(*_hidden_in_tags(stripped, cut_origin), *views),
        disguises=tuple(dict.fromkeys((*stripped.disguises, *undone))),
        is_truncated=len(text) > max_chars,
    )


def _bounded(text: str, max_chars: int) -> tuple[str, Origin]:
    if len(text) <= max_chars:
        return text, Origin()
    half = max_chars // 2
    return delete(text, [(max_chars - half, len(text) - half)])


def _placed(view: DecodedView, origin: Origin) -> DecodedView:
    start, end = origin.span(view.start, view.end)
    return DecodedView(method=view.method, text=view.text, start=start, end=end)


def _hidden_in_tags(stripped: Stripped, origin: Origin) -> tuple[DecodedView, ...]:
    if not reads_like_language(stripped.tags):
        return ()
    start, end = stripped.tag_span
    return (_placed(DecodedView(method="tags", text=stripped.tags, start=start, end=end), origin),)
