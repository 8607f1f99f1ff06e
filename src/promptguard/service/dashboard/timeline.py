"""Bars over time as inline SVG: one per stretch, stacked by what was done, each a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from promptguard.counts import counted
from promptguard.queries import Bucket
from promptguard.runs.svg import drawing, element

WIDTH, HEIGHT = 960, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 12, 26
_TICKS = 6
_DAY_S = 86_400
FLAGGED = ("blocked", "stripped", "steered")
ALL = ("turns",)
Link = Callable[[Bucket], str]


def timeline(
    buckets: Sequence[Bucket],
    width_s: int,
    link: Link,
    kinds: Sequence[str] = FLAGGED,
    *,
    height: int = HEIGHT,
) -> Markup:
    """Draw turns over time: those of `kinds`, one on top of the other."""
    sizes = [sum(count for _, count in _counts(bucket, kinds)) for bucket in buckets]
    tallest, turns = max(sizes, default=0), counted(sum(sizes), "turn")
    what = "" if kinds == ALL else "blocked, stripped or steered "
    floor = height - _BOTTOM
    unit = (floor - _TOP) / max(1, tallest)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(buckets))
    parts = _scale(tallest, floor)
    for at, bucket in enumerate(buckets):
        x = _LEFT + at * step
        parts.append(_bar(bucket, width_s, kinds, link, (x, step, floor, unit)))
        if at % max(1, len(buckets) // _TICKS) == 0:
            label = _tick(bucket.start, width_s * len(buckets))
            parts.append(element("text", label, class_="tick-time", x=x, y=height - 8))
    title = f"{turns} {what}over time, at most {tallest} at once"
    return drawing(title, parts, width=WIDTH, height=height, is_scaled=True, class_="timeline")


def _counts(bucket: Bucket, kinds: Sequence[str]) -> list[tuple[str, int]]:
    return [(kind, int(getattr(bucket, kind))) for kind in kinds]


def _scale(tallest: int, floor: int) -> list[Markup]:
    return [
        element("line", class_="rule", x1=_LEFT, x2=WIDTH - _RIGHT, y1=floor, y2=floor),
        element("line", class_="rule", x1=_LEFT, x2=WIDTH - _RIGHT, y1=_TOP, y2=_TOP),
        element("text", f"{tallest:,}", class_="tick", x=_LEFT - 6, y=_TOP + 4),
        element("text", "0", class_="tick", x=_LEFT - 6, y=floor + 4),
    ]


def _bar(
    bucket: Bucket,
    width_s: int,
    kinds: Sequence[str],
    link: Link,
    place: tuple[float, float, int, float],
) -> Markup:
    x, step, floor, unit = place
    counts = [(kind, count) for kind, count in _counts(bucket, kinds) if count]
    if not counts:
        return Markup()
    begins = datetime.fromtimestamp(bucket.start, UTC)
    ends = datetime.fromtimestamp(bucket.start + width_s, UTC)
    words = ", ".join(f"{count} {kind}" for kind, count in counts)
    title = f"{begins:%Y-%m-%d %H:%M} to {ends:%H:%M} UTC: {words}"
    shapes, y = [], float(floor)
    for kind, count in counts:
        # A single turn stays visible beside thousands.
        tall = max(1.5, count * unit)
        y -= tall
        box = {"x": x + 0.5, "y": y, "width": max(1.0, step - 1.5), "height": tall}
        shapes.append(element("rect", class_=f"bar-{kind}", **box))
    return element("a", element("title", title), *shapes, href=link(bucket), aria_label=title)


def _tick(start: int, span_s: int) -> str:
    moment = datetime.fromtimestamp(start, UTC)
    return f"{moment:%H:%M}" if span_s <= 2 * _DAY_S else f"{moment:%d %b}"
