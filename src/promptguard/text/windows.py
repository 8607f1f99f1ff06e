"""Where a long sequence is cut so that every part is judged, within a bound."""

from __future__ import annotations

from promptguard.errors import InputError

Span = tuple[int, int]


def cut(length: int, size: int, stride: int, limit: int) -> tuple[tuple[Span, ...], bool]:
    """Return overlapping spans that cover `length` items, and whether the bound was hit.

    Spans are `size` long (the last one ends at `length`) and start `stride` apart. Where more
    than `limit` would be needed, `limit` of them are spread evenly: the beginning and the end
    are always among them, what lies between is sampled.
    """
    if size < 1 or not 1 <= stride <= size or limit < 1:
        raise InputError("A window needs size >= stride >= 1 and a limit of at least 1.")
    if length <= 0:
        return (), False
    if length <= size:
        return ((0, length),), False
    last = length - size
    needed = -(-last // stride) + 1
    if needed <= limit:
        starts = [min(index * stride, last) for index in range(needed)]
        return tuple((start, start + size) for start in starts), False
    if limit == 1:
        return ((0, size),), True
    starts = [round(index * last / (limit - 1)) for index in range(limit)]
    return tuple((start, start + size) for start in starts), True
