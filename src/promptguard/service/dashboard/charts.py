"""Hand-drawn charts as inline SVG: the trajectory of risk, evidence bars, sparklines.

Pure functions. Colours come from the style sheet by class, so that one drawing fits both
themes; every drawing says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.service.dashboard.markup import esc, nats_text
from promptguard.state import Action, Mode, ModeEntry

WIDTH, HEIGHT = 960, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 84, 38, 28
_MOST_POINTS = 600
_INSET = 12
_TICK_WIDTH = 50
_FLAG_WIDTH = 92
_BAR_ROW, _BAR_LABEL, _BAR_VALUE = 20, 118, 44
_LEAST_SCALE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The verdict on one turn, as far as it is drawn."""

    turn: int
    risk: float
    mode: Mode
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a signal or a turn by name, and its evidence."""

    name: str
    nats: float
    reason: str = ""


def sparkline(risks: Sequence[float], mode: Mode, *, width: int = 120, height: int = 28) -> str:
    """Draw the last risks of a session, the newest at the right."""
    said = f"Risk of the last {len(risks)} turns, now {risks[-1]:.2f}" if risks else "No turns yet"
    head = (
        f'<svg class="spark m{int(mode)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{said}"><title>{said}</title>'
    )
    if not risks:
        return head + "</svg>"
    step = (width - 8) / max(1, len(risks) - 1)
    spots = [(4 + i * step, height - 4 - _unit(r) * (height - 8)) for i, r in enumerate(risks)]
    if len(spots) == 1:
        spots = [(4, spots[0][1]), (width - 4, spots[0][1])]
    line = _path(spots)
    x, y = spots[-1]
    area = f"{line} L {x:.1f} {height - 1} L {spots[0][0]:.1f} {height - 1} Z"
    return (
        f'{head}<path class="area" d="{area}"/><path class="line" d="{line}"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/></svg>'
    )


def trajectory(
    points: Sequence[Point],
    starts: Sequence[tuple[Mode, float]],
    entered: Sequence[ModeEntry] = (),
    *,
    other: Sequence[Point] = (),
    width: int = WIDTH,
) -> str:
    """Draw the risk turn by turn over the bands of the modes.

    `starts` are the risks at which the modes above SAFE begin, `entered` where each was first
    reached, `other` the same turns judged under another configuration.
    """
    last = max((point.turn for point in (*points, *other)), default=1)
    first = min((point.turn for point in (*points, *other)), default=1)
    frame = _Frame(first=first, last=max(last, first + 1), right=width - _RIGHT)
    parts = [*_bands(starts, frame), *_axis(frame)]
    parts += _flags([entry for entry in entered if first <= entry.turn <= last], frame)
    if other:
        parts.append(_line(other, frame, "other"))
    if points:
        parts.append(_line(points, frame, "ours"))
        parts += [_dot(point, frame) for point in _drawn(points)]
    said = esc(_in_words(points, entered))
    return (
        f'<svg class="trajectory" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{said}">'
        f"<title>{said}</title>{''.join(parts)}</svg>"
    )


def evidence_bars(bars: Sequence[Bar], *, title: str, width: int = 310) -> str:
    """Draw evidence in nats around zero: to the right for an attack, to the left against it."""
    if not bars:
        return '<p class="quiet">No evidence either way.</p>'
    most, least = max(bar.nats for bar in bars), min(bar.nats for bar in bars)
    right, left = max(0.0, most), max(0.0, -least)
    room = width - _BAR_LABEL - _BAR_VALUE * ((right > 0) + (left > 0))
    unit = room / max(_LEAST_SCALE, left + right)
    zero = _BAR_LABEL + (_BAR_VALUE + left * unit if left else 0.0)
    height = _BAR_ROW * len(bars) + 4
    said = esc(f"{title}: " + ", ".join(f"{bar.name} {bar.nats:+.2f}" for bar in bars))
    rows = "".join(
        _bar(bar, 2 + at * _BAR_ROW, zero, unit * bar.nats) for at, bar in enumerate(bars)
    )
    return (
        f'<svg class="bars" viewBox="0 0 {width} {height}" style="max-width:{width * 1.1:.0f}px" '
        f'role="img" aria-label="{said}">'
        f"<title>{said}</title>"
        f'<line class="zero" x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{height}"/>{rows}</svg>'
    )


def mode_strip(counts: Sequence[tuple[Mode, int]], *, width: int = 480, height: int = 10) -> str:
    """Draw how many sessions stand in each mode as one bar."""
    total = sum(count for _, count in counts)
    said = ", ".join(f"{count} {mode.name}" for mode, count in counts if count) or "no sessions"
    parts, x = [], 0.0
    for mode, count in counts:
        share = width * count / total if total else 0.0
        if share:
            parts.append(
                f'<rect class="m{int(mode)}" x="{x:.1f}" y="0" width="{max(1.0, share - 1.5):.1f}" '
                f'height="{height}" rx="2"><title>{count} {mode.name}</title></rect>'
            )
        x += share
    return (
        f'<svg class="strip" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="Sessions by mode: {said}">{"".join(parts)}</svg>'
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


def _path(spots: Sequence[tuple[float, float]]) -> str:
    return "M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in spots)


def _bands(starts: Sequence[tuple[Mode, float]], frame: _Frame) -> list[str]:
    edges = [(Mode.SAFE, 0.0), *starts]
    tops = [start for _, start in starts] + [1.0]
    right = frame.right
    parts = []
    for (mode, low), high in zip(edges, tops, strict=True):
        top, bottom = _y(high), _y(low)
        parts.append(
            f'<rect class="band m{int(mode)}" x="{_LEFT}" y="{top:.1f}" '
            f'width="{right - _LEFT}" height="{bottom - top:.1f}"/>'
            f'<text class="band-name m{int(mode)}" x="{right + 8}" '
            f'y="{(top + bottom) / 2 + 4:.1f}">{mode.name}</text>'
        )
        if low:
            parts.append(
                f'<text class="tick" x="{_LEFT - 6}" y="{bottom + 4:.1f}">{low:.2f}</text>'
            )
    return parts


def _axis(frame: _Frame) -> list[str]:
    most = max(2, int((frame.right - _LEFT) // _TICK_WIDTH))
    step = max(1, -(-(frame.last - frame.first + 1) // most))
    turns = range(frame.first, frame.last + 1, step)
    bottom = HEIGHT - _BOTTOM
    ticks = [
        f'<text class="tick-x" x="{frame.x(turn):.1f}" y="{bottom + 16}">{turn}</text>'
        for turn in turns
    ]
    name = (
        f'<text class="tick-x" x="{frame.right + 10}" y="{bottom + 16}" '
        'style="text-anchor:start">turn</text>'
    )
    return [*ticks, name]


def _flags(entered: Sequence[ModeEntry], frame: _Frame) -> list[str]:
    """Mark where each mode was first reached; modes reached in one turn share a flag."""
    highest = {entry.turn: entry.mode for entry in sorted(entered, key=lambda entry: entry.mode)}
    parts, free_from = [], [0.0, 0.0]
    for turn, mode in sorted(highest.items()):
        if mode is Mode.SAFE:
            continue
        x = frame.x(turn)
        parts.append(
            f'<line class="flag m{int(mode)}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" '
            f'y2="{HEIGHT - _BOTTOM}"/>'
        )
        row = next((row for row, free in enumerate(free_from) if x >= free), None)
        if row is not None:
            parts.append(
                f'<text class="flag-name m{int(mode)}" x="{x:.1f}" y="{_TOP - 12 - 13 * row}">'
                f"{mode.name} at {turn}</text>"
            )
            free_from[row] = x + _FLAG_WIDTH
    return parts


def _line(points: Sequence[Point], frame: _Frame, kind: str) -> str:
    spots = [(frame.x(point.turn), _y(point.risk)) for point in _drawn(points)]
    return f'<path class="risk {kind}" d="{_path(spots)}"/>'


def _drawn(points: Sequence[Point]) -> Sequence[Point]:
    """Return what a chart can show: of each stretch of a long session its riskiest turn."""
    if len(points) <= _MOST_POINTS:
        return points
    size = -(-len(points) // _MOST_POINTS)
    stretches = [points[at : at + size] for at in range(0, len(points), size)]
    return [max(stretch, key=lambda point: point.risk) for stretch in stretches]


def _dot(point: Point, frame: _Frame) -> str:
    x, y = frame.x(point.turn), _y(point.risk)
    said = f"Turn {point.turn}: risk {point.risk:.2f}, {point.mode.name}, {point.action.value}"
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.2"/>'
    if point.action is Action.BLOCK:
        shape = (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
            f'<path class="cross" d="M {x - 2.6:.1f} {y - 2.6:.1f} l 5.2 5.2 m 0 -5.2 l -5.2 5.2"/>'
        )
    return f'<g class="dot m{int(point.mode)}"><title>{said}</title>{shape}</g>'


def _bar(bar: Bar, y: float, zero: float, length: float) -> str:
    left, width = (zero, length) if length >= 0 else (zero + length, -length)
    kind = "for" if length >= 0 else "against"
    value_x = zero + length + (6 if length >= 0 else -6)
    anchor = "start" if length >= 0 else "end"
    hint = f"<title>{esc(bar.reason)}</title>" if bar.reason else ""
    return (
        f'<g class="{kind}">{hint}<text class="name" x="{_BAR_LABEL - 8}" y="{y + 13}">'
        f"{esc(bar.name.replace('_', ' '))}</text>"
        f'<rect x="{left:.1f}" y="{y + 3}" width="{max(1.0, width):.1f}" height="12" rx="2"/>'
        f'<text class="value" x="{value_x:.1f}" y="{y + 13}" style="text-anchor:{anchor}">'
        f"{nats_text(bar.nats)}</text></g>"
    )


def _in_words(points: Sequence[Point], entered: Sequence[ModeEntry]) -> str:
    if not points:
        return "No turns yet."
    last = points[-1]
    said = f"Risk over {len(points)} turns, last {last.risk:.2f} ({last.mode.name})."
    reached = [f"{e.mode.name} at turn {e.turn}" for e in entered if e.mode is not Mode.SAFE]
    return said + (f" First reached: {', '.join(reached)}." if reached else "")
