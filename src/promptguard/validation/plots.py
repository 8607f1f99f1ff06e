"""Plots as SVG, drawn by hand: nothing to load, nothing to run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from statistics import NormalDist

from promptguard.validation.compare import Attribution
from promptguard.validation.metrics import Bin
from promptguard.validation.summary import Miss

WIDTH, HEIGHT, MARGIN = 360, 300, 46
COLOURS = (
    "#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2",
    "#be185d", "#4d7c0f", "#6b7280", "#a16207", "#1e3a8a", "#f472b6",
)  # fmt: skip
_DET_TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8)
_PLAIN_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_DEEPEST = 0.0005

Points = Sequence[tuple[float, float]]
_Scale = Callable[[float], float]


def roc_plot(curves: Sequence[tuple[str, Points]]) -> str:
    """Draw recall over false-positive rate."""
    lines = "".join(
        _line(points, COLOURS[n % len(COLOURS)]) for n, (_, points) in enumerate(curves)
    )
    frame = _frame("ROC", "false-positive rate", "recall", _PLAIN_TICKS, _PLAIN_TICKS, float, float)
    return _svg("ROC curves", frame + _diagonal() + lines + _legend([name for name, _ in curves]))


def det_plot(curves: Sequence[tuple[str, Points]]) -> str:
    """Draw misses over false alarms on normal-deviate axes, where low rates are wide apart."""
    frame = _frame(
        "DET", "false-positive rate", "miss rate", _DET_TICKS, _DET_TICKS, _deviate, _deviate
    )
    lines = "".join(
        _line([(_deviate(x), _deviate(1 - y)) for x, y in points], COLOURS[n % len(COLOURS)])
        for n, (_, points) in enumerate(curves)
    )
    legend = _legend([name for name, _ in curves], at_top=True)
    return _svg("DET curves", frame + lines + legend)


def reliability_plot(bins: Sequence[Bin]) -> str:
    """Draw what was so over what was said; the area of a dot is the size of its bin."""
    most = max((each.count for each in bins), default=1)
    dots = "".join(
        f'<circle cx="{_x(each.mean_score):.1f}" cy="{_y(each.attack_share):.1f}" '
        f'r="{2 + 8 * math.sqrt(each.count / most):.1f}" fill="{COLOURS[0]}" fill-opacity=".6">'
        f"<title>{each.count} cases, said {each.mean_score:.2f}, "
        f"were {each.attack_share:.2f}</title></circle>"
        for each in bins
    )
    frame = _frame(
        "Reliability", "risk", "share of attacks", _PLAIN_TICKS, _PLAIN_TICKS, float, float
    )
    return _svg("Reliability", frame + _diagonal() + dots)


def histogram(counts: Sequence[int]) -> str:
    """Draw how much of an attack was spoken when it was seen."""
    most = max(counts, default=0) or 1
    wide = 1 / max(1, len(counts))
    bars = "".join(
        f'<rect x="{_x(n * wide) + 1:.1f}" y="{_y(count / most):.1f}" '
        f'width="{_x(wide) - _x(0) - 2:.1f}" height="{_y(0) - _y(count / most):.1f}" '
        f'fill="{COLOURS[0]}"><title>{count} attacks</title></rect>'
        for n, count in enumerate(counts)
    )
    frame = _frame(
        "Turn of detection", "share of the attack spoken", f"attacks, up to {most}",
        _PLAIN_TICKS, (), float, float,
    )  # fmt: skip
    return _svg("Turn of detection", frame + bars)


def trajectories(misses: Sequence[Miss]) -> str:
    """Draw the risk, turn by turn, of the attacks that looked least like it."""
    top = max((risk for miss in misses for risk in miss.risks), default=1.0) or 1.0
    lines = "".join(
        _line([(x, risk / top) for x, risk in _spread(miss.risks)], COLOURS[n % len(COLOURS)])
        for n, miss in enumerate(misses)
    )
    ticks = (0.0, float(f"{top:.2g}"))
    frame = _frame(
        "Worst misses", "from first to last turn", "risk",
        (), ticks, float, lambda risk: risk / top,
    )  # fmt: skip
    legend = _legend([str(miss.id) for miss in misses], at_top=True)
    return _svg("Risk of the worst misses", frame + lines + legend)


def attribution_plot(found: Attribution) -> str:
    """Draw the matrix of what the row caught and the column missed."""
    most = max((n for row in found.matrix for n in row), default=0) or 1
    cell, left, top = 46, 150, 130
    size = len(found.names)
    parts = []
    for r, row in enumerate(found.matrix):
        y = top + r * cell
        parts.append(_text(left - 6, y + cell / 2 + 4, found.names[r], "end"))
        for c, count in enumerate(row):
            x = left + c * cell
            parts.append(
                f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" '
                f'fill="{COLOURS[0]}" fill-opacity="{0.08 + 0.8 * count / most:.2f}"/>'
                + _text(x + cell / 2 - 1, y + cell / 2 + 4, str(count), "middle")
            )
    for c, name in enumerate(found.names):
        middle = left + c * cell + cell / 2
        turned = f"rotate(-45 {middle} {top - 8})"
        parts.append(_text(middle, top - 8, name, "start", turned))
    wide, high = left + size * cell + 60, top + size * cell + 10
    return _svg("Caught by the row, missed by the column", "".join(parts), wide, high)


def _svg(title: str, inside: str, width: int = WIDTH, height: int = HEIGHT) -> str:
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><title>{escape(title)}</title>{inside}</svg>'
    )


def _frame(
    title: str,
    across: str,
    up: str,
    x_ticks: Iterable[float],
    y_ticks: Iterable[float],
    x_scale: _Scale,
    y_scale: _Scale,
) -> str:
    wide, high = _x(1) - _x(0), _y(0) - _y(1)
    parts = [
        f'<rect x="{_x(0)}" y="{_y(1)}" width="{wide}" height="{high}" class="f"/>',
        _text((_x(0) + _x(1)) / 2, 16, title, "middle"),
        _text((_x(0) + _x(1)) / 2, HEIGHT - 6, across, "middle"),
        _text(12, (_y(0) + _y(1)) / 2, up, "middle", f"rotate(-90 12 {(_y(0) + _y(1)) / 2})"),
    ]
    parts += [_text(_x(x_scale(t)), _y(0) + 14, f"{t:g}", "middle") for t in x_ticks]
    parts += [_text(_x(0) - 4, _y(y_scale(t)) + 4, f"{t:g}", "end") for t in y_ticks]
    return "".join(parts)


def _line(points: Points, colour: str) -> str:
    path = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _diagonal() -> str:
    return f'<line x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}" class="d"/>'


def _legend(names: Sequence[str], *, at_top: bool = False) -> str:
    rows = []
    first = _y(1) + 14 if at_top else _y(0) - 8 - 13 * (len(names) - 1)
    for n, name in enumerate(names):
        y = first + 13 * n
        rows.append(
            f'<rect x="{_x(1) - 10}" y="{y - 7}" width="8" height="8" '
            f'fill="{COLOURS[n % len(COLOURS)]}"/>' + _text(_x(1) - 14, y, name, "end")
        )
    return "".join(rows)


def _text(x: float, y: float, said: str, anchor: str, transform: str = "") -> str:
    turned = f' transform="{transform}"' if transform else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}>{escape(said)}</text>'


def _spread(risks: Sequence[float]) -> Points:
    last = max(1, len(risks) - 1)
    return [(place / last, risk) for place, risk in enumerate(risks)]


def _deviate(rate: float) -> float:
    """Return where a rate stands on a normal-deviate axis from 0 to 1."""
    low, high = NormalDist().inv_cdf(_DEEPEST), NormalDist().inv_cdf(1 - _DEEPEST)
    kept = min(max(rate, _DEEPEST), 1 - _DEEPEST)
    return (NormalDist().inv_cdf(kept) - low) / (high - low)


def _x(share: float) -> float:
    return MARGIN + share * (WIDTH - MARGIN - 14)


def _y(share: float) -> float:
    return HEIGHT - MARGIN + 10 - share * (HEIGHT - MARGIN - 14)
