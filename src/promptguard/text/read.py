"""One text read in every form that is judged: as written, normalised, and decoded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from promptguard.errors import InputError
from promptguard.text.decode import decode, merged, unfold
from promptguard.text.normalize import normalised
from promptguard.text.origin import DecodedView, Origin, edit, through

MAX_CHARS = 1_000_000


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
    kept, cut = bounded(text, max_chars)
    read = normalised(kept, max_chars)
    stripped = read.stripped
    back = (stripped.origin, cut)
    decoded = tuple(_placed(view, back) for view in decode(stripped.text))
    if stripped.spelled:
        invisible = unfold(stripped.spelled, 4 * len(kept))
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


def bounded(text: str, max_chars: int) -> tuple[str, Origin]:
    """Return as much of `text` as is read, and the way back."""
    if max_chars < 2:
        raise InputError("max_chars must be at least 2.")
    if len(text) <= max_chars:
        return text, Origin()
    half = max_chars // 2
    return edit(text, [(max_chars - half, len(text) - half, "")])


def _placed(view: DecodedView, back: tuple[Origin, ...]) -> DecodedView:
    start, end = through(back, view.start, view.end)
    return view if (start, end) == (view.start, view.end) else replace(view, start=start, end=end)
