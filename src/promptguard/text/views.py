"""The forms of one text that are judged: as written, normalised, and decoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedView:
    """A text found inside the text by undoing one disguise."""

    method: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextViews:
    """`original` as written; `plain` normalised but readable (case kept); `folded` for matching
    (casefolded, confusables mapped, spaces squeezed); `decoded` what disguises hid;
    `disguises` names what was undone on the way to `plain`."""

    original: str
    plain: str
    folded: str
    decoded: tuple[DecodedView, ...] = ()
    disguises: tuple[str, ...] = ()
    is_truncated: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """Every distinct text worth judging, the plain one first."""
        return tuple(dict.fromkeys((self.plain, *(view.text for view in self.decoded))))
