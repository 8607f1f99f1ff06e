"""Charts as inline SVG: the trajectory of risk, evidence bars, sparklines.

Pure functions. Colours come from the style sheet by class, so that one drawing fits both
themes; every drawing has a text alternative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from promptguard.counts import counted
from promptguard.runs.svg import drawing, element
from promptguard.service.dashboard.templates import nats_text, render
from promptguard.state import ModeEntry
from promptguard.verdict import Action, Mode

WIDTH, HEIGHT = 960, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 84, 38, 28
# More points than pixels show nothing more and make the page heavy.
_MOST_POINTS = 600
_INSET = 12
_TICK_WIDTH = 50
_FLAG_WIDTH = 112
_BAR_ROW, _BAR_LABEL, _BAR_VALUE = 20, 118, 44
# Weak evidence must not fill the drawing and look strong.
_LEAST_SCALE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The verdict on one turn, as far as it is drawn: the turn's own risk and the session's."""

    turn: int
    risk: float
    mode: Mode
    action: Action
    accumulated: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a signal or a turn by name, and its evidence."""

    name: str
    nats: float
    reason: str = ""


def sparkline(risks: Sequence[float], mode: Mode, *, width: int = 120, height: int = 28) -> Markup:
    """Draw the last risks of a session, the newest at the right."""
    title = "No turns yet"
    if risks:
        title = f"Risk of {counted(len(risks), 'recent turn')}, now {risks[-1]:.2f}"
    parts: list[Markup] = []
    if risks:
        step = (width - 8) / max(1, len(risks) - 1)
        spots = [(4 + i * step, height - 4 - _unit(r) * (height - 8)) for i, r in enumerate(risks)]
        # A line needs two ends.
        if len(spots) == 1:
            spots = [(4, spots[0][1]), (width - 4, spots[0][1])]
        line, (x, y) = _path(spots), spots[-1]
        area = f"{line} L {x:.1f} {height - 1} L {spots[0][0]:.1f} {height - 1} Z"
        parts = [
            element("path", class_="area", d=area),
            element("path", class_="line", d=line),
            element("circle", class_="dot", cx=x, cy=y, r=2.6),
        ]
    return drawing(title, parts, width=width, height=height, class_=f"spark m{int(mode)}")


def trajectory(
    points: Sequence[Point],
    starts: Sequence[tuple[Mode, float]],
    entered: Sequence[ModeEntry] = (),
    *,
    other: Sequence[Point] = (),
    width: int = WIDTH,
) -> Markup:
    """Draw the risk of each turn, and the accumulated risk over the bands of the modes.

    `starts` are the risks at which the modes above SAFE begin, `entered` where each was first
    reached, `other` the same turns judged under another configuration.
    """
    turns = [point.turn for point in (*points, *other)] or [1]
    first, last = min(turns), max(turns)
    frame = _Frame(first=first, last=max(last, first + 1), right=width - _RIGHT)
    parts = [*_bands(starts, frame), *_axis(frame)]
    parts += _flags([entry for entry in entered if first <= entry.turn <= last], frame)
    if other:
        parts.append(_line(other, frame, "other"))
    if points:
        memory = [replace(p, risk=p.accumulated) for p in points if p.accumulated is not None]
        if memory:
            parts.append(_line(memory, frame, "memory"))
        parts.append(_line(points, frame, "ours"))
        parts += [_dot(point, frame) for point in _drawn(points)]
    title = _in_words(points, entered)
    return drawing(title, parts, width=width, height=HEIGHT, is_scaled=True, class_="trajectory")


def evidence_bars(bars: Sequence[Bar], *, title: str, width: int = 350) -> Markup:
    """Draw evidence in nats around zero: to the right for an attack, to the left against it."""
    if not bars:
        return render("parts", "quiet", "No evidence either way.")
    right = max(0.0, *(bar.nats for bar in bars))
    left = max(0.0, *(-bar.nats for bar in bars))
    room = width - _BAR_LABEL - _BAR_VALUE * ((right > 0) + (left > 0))
    unit = room / max(_LEAST_SCALE, left + right)
    zero = _BAR_LABEL + (_BAR_VALUE + left * unit if left else 0.0)
    height = _BAR_ROW * len(bars) + 4
    label = f"{title}: " + ", ".join(f"{bar.name} {bar.nats:+.2f}" for bar in bars)
    drawn = [_bar(bar, 2 + at * _BAR_ROW, zero, unit * bar.nats) for at, bar in enumerate(bars)]
    return drawing(
        label,
        [element("line", class_="zero", x1=zero, x2=zero, y1=0, y2=height), *drawn],
        width=width,
        height=height,
        is_scaled=True,
        class_="bars",
        style=f"max-width:{width * 1.1:.0f}px",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    first: int
    last: int
    right: float

    def x(self, turn: int) -> float:
        share = (turn - self.first) / (self.last - self.first)
        return _LEFT + _INSET + share * (self.right - _LEFT - 2 * _INSET)


def _y(risk: float) -> float:
    return _TOP + (1.0 - _unit(risk)) * (HEIGHT - _TOP - _BOTTOM)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))


def _path(spots: Iterable[tuple[float, float]]) -> str:
    return "M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in spots)


def _bands(starts: Sequence[tuple[Mode, float]], frame: _Frame) -> list[Markup]:
    edges = [(Mode.SAFE, 0.0), *starts]
    tops = [start for _, start in starts] + [1.0]
    right = frame.right
    parts = []
    for (mode, low), high in zip(edges, tops, strict=True):
        top, bottom = _y(high), _y(low)
        colour = f"m{int(mode)}"
        box = {"x": _LEFT, "y": top, "width": right - _LEFT, "height": bottom - top}
        parts.append(element("rect", class_=f"band {colour}", **box))
        x, y = right + 8, (top + bottom) / 2 + 4
        parts.append(element("text", mode.name, class_=f"band-name {colour}", x=x, y=y))
        if low:
            parts.append(element("text", f"{low:.2f}", class_="tick", x=_LEFT - 6, y=bottom + 4))
    return parts


def _axis(frame: _Frame) -> list[Markup]:
    most = max(2, int((frame.right - _LEFT) // _TICK_WIDTH))
    step = max(1, -(-(frame.last - frame.first + 1) // most))
    y = HEIGHT - _BOTTOM + 16
    ticks = [
        element("text", str(turn), class_="tick-x", x=frame.x(turn), y=y)
        for turn in range(frame.first, frame.last + 1, step)
    ]
    x = frame.right + 10
    return [*ticks, element("text", "turn", class_="tick-x", x=x, y=y, style="text-anchor:start")]


def _flags(entered: Sequence[ModeEntry], frame: _Frame) -> list[Markup]:
    """Mark where each mode was first reached; modes reached in one turn share a flag."""
    # Sorted by mode, so that the highest of one turn is what stays in the dict.
    highest = {entry.turn: entry.mode for entry in sorted(entered, key=lambda entry: entry.mode)}
    # Two rows of labels; one that would overlap both is left out, its line stays.
    parts, free_from = [], [0.0, 0.0]
    for turn, mode in sorted(highest.items()):
        if mode is Mode.SAFE:
            continue
        x, colour = frame.x(turn), f"m{int(mode)}"
        ends = {"x1": x, "x2": x, "y1": _TOP - 8, "y2": HEIGHT - _BOTTOM}
        parts.append(element("line", class_=f"flag {colour}", **ends))
        row = next((row for row, free in enumerate(free_from) if x >= free), None)
        if row is not None:
            label, y = f"{mode.name} at {turn}", _TOP - 12 - 13 * row
            parts.append(element("text", label, class_=f"flag-name {colour}", x=x, y=y))
            free_from[row] = x + _FLAG_WIDTH
    return parts


def _line(points: Sequence[Point], frame: _Frame, kind: str) -> Markup:
    spots = ((frame.x(point.turn), _y(point.risk)) for point in _drawn(points))
    return element("path", class_=f"risk {kind}", d=_path(spots))


def _drawn(points: Sequence[Point]) -> Sequence[Point]:
    """Return what a chart can show: of each stretch of a long session its riskiest turn."""
    if len(points) <= _MOST_POINTS:
        return points
    size = -(-len(points) // _MOST_POINTS)
    stretches = [points[at : at + size] for at in range(0, len(points), size)]
    return [max(stretch, key=lambda point: point.risk) for stretch in stretches]


def _dot(point: Point, frame: _Frame) -> Markup:
    x, y = frame.x(point.turn), _y(point.risk)
    title = f"Turn {point.turn}: risk {point.risk:.2f}, {point.mode.name}, {point.action.value}"
    if point.accumulated is not None:
        title += f", accumulated {point.accumulated:.2f}"
    is_blocked = point.action is Action.BLOCK
    shapes = [element("circle", cx=x, cy=y, r=6.5 if is_blocked else 4.2)]
    if is_blocked:
        cross = f"M {x - 2.6:.1f} {y - 2.6:.1f} l 5.2 5.2 m 0 -5.2 l -5.2 5.2"
        shapes.append(element("path", class_="cross", d=cross))
    return element("g", element("title", title), *shapes, class_=f"dot m{int(point.mode)}")


def _bar(bar: Bar, y: float, zero: float, length: float) -> Markup:
    is_for = length >= 0
    left, width = (zero, length) if is_for else (zero + length, -length)
    value_x = zero + length + (6 if is_for else -6)
    anchor = f"text-anchor:{'start' if is_for else 'end'}"
    name, value = bar.name.replace("_", " "), nats_text(bar.nats)
    box = {"x": left, "y": y + 3, "width": max(1.0, width), "height": 12, "rx": 2}
    return element(
        "g",
        *([element("title", bar.reason)] if bar.reason else []),
        element("text", name, class_="name", x=_BAR_LABEL - 8, y=y + 13),
        element("rect", **box),
        element("text", value, class_="value", x=value_x, y=y + 13, style=anchor),
        class_="for" if is_for else "against",
    )


def _in_words(points: Sequence[Point], entered: Sequence[ModeEntry]) -> str:
    if not points:
        return "No turns yet."
    last = points[-1]
    summary = f"Risk over {counted(len(points), 'turn')}, last {last.risk:.2f} ({last.mode.name})."
    reached = [f"{e.mode.name} at turn {e.turn}" for e in entered if e.mode is not Mode.SAFE]
    return summary + (f" First reached: {', '.join(reached)}." if reached else "")
