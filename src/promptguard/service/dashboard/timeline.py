"""Bars over time as inline SVG: one per stretch, stacked by what was done, each a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from promptguard.counts import counted
from promptguard.queries import Bucket
from promptguard.runs.svg import element

WIDTH, HEIGHT = 960, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 12, 26
_TICKS = 6
_DAY_S = 86_400
KINDS = (("blocked", "blocked"), ("stripped", "stripped"), ("steered", "steered"))


def flagged_timeline(
    buckets: Sequence[Bucket], width_s: int, link: Callable[[Bucket], str]
) -> Markup:
    """Draw blocked, stripped and steered turns over time."""
    tallest = max((b.blocked + b.stripped + b.steered for b in buckets), default=0)
    total = sum(b.blocked + b.stripped + b.steered for b in buckets)
    turns = counted(total, "turn")
    title = f"{turns} blocked, stripped or steered over time, at most {tallest} at once"
    return _timeline(buckets, width_s, link, KINDS, title, tallest)


def turns_timeline(
    buckets: Sequence[Bucket], width_s: int, link: Callable[[Bucket], str]
) -> Markup:
    """Draw all turns over time."""
    tallest = max((b.turns for b in buckets), default=0)
    title = f"{counted(sum(b.turns for b in buckets), 'turn')} over time, at most {tallest} at once"
    return _timeline(buckets, width_s, link, (("turns", "turns"),), title, tallest, height=120)


def _timeline(
    buckets: Sequence[Bucket],
    width_s: int,
    link: Callable[[Bucket], str],
    kinds: Sequence[tuple[str, str]],
    title: str,
    tallest: int,
    *,
    height: int = HEIGHT,
) -> Markup:
    floor = height - _BOTTOM
    room = floor - _TOP
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(buckets))
    parts = [element("title", title), *_scale(tallest, floor)]
    for at, bucket in enumerate(buckets):
        x = _LEFT + at * step
        parts.append(_bar(bucket, width_s, kinds, link, (x, step, floor, room / max(1, tallest))))
        if at % max(1, len(buckets) // _TICKS) == 0:
            label = _tick(bucket.start, width_s * len(buckets))
            parts.append(element("text", label, class_="tick-time", x=x, y=height - 8))
    return element(
        "svg",
        *parts,
        class_="timeline",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=title,
    )


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
    kinds: Sequence[tuple[str, str]],
    link: Callable[[Bucket], str],
    place: tuple[float, float, int, float],
) -> Markup:
    x, step, floor, unit = place
    counts = [(kind, name, int(getattr(bucket, kind))) for kind, name in kinds]
    if not any(count for *_, count in counts):
        return Markup()
    begins = datetime.fromtimestamp(bucket.start, UTC)
    ends = datetime.fromtimestamp(bucket.start + width_s, UTC)
    words = ", ".join(f"{count} {name}" for _, name, count in counts if count)
    title = f"{begins:%Y-%m-%d %H:%M} to {ends:%H:%M} UTC: {words}"
    shapes, y = [], float(floor)
    for kind, _, count in counts:
        # A single turn stays visible beside thousands.
        tall = max(1.5, count * unit) if count else 0.0
        y -= tall
        if count:
            box = {"x": x + 0.5, "y": y, "width": max(1.0, step - 1.5), "height": tall}
            shapes.append(element("rect", class_=f"bar-{kind}", **box))
    return element("a", element("title", title), *shapes, href=link(bucket), aria_label=title)


def _tick(start: int, span_s: int) -> str:
    moment = datetime.fromtimestamp(start, UTC)
    return f"{moment:%H:%M}" if span_s <= 2 * _DAY_S else f"{moment:%d %b}"
