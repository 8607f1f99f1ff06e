"""Plots of a validation report, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from markupsafe import Markup

from promptguard.counts import counted
from promptguard.runs.report import Attribution, Bin, Mistake
from promptguard.runs.svg import Point, colour, drawing, element, label, polyline

WIDTH, HEIGHT, MARGIN = 360, 300, 46
_DET_TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8)
_PLAIN_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
# At rates of 0 and 1 the normal deviate is infinite.
_DEEPEST = 0.0005
_CELL, _NAMES_LEFT, _NAMES_TOP = 46, 150, 130

Points = Sequence[Point]
Curve = tuple[str, Points]


def roc_plot(curves: Sequence[Curve]) -> Markup:
    """Draw recall over false-positive rate."""
    axes = _Axes(title="ROC", across="false-positive rate", up="recall")
    legend = _legend([name for name, _ in curves])
    lines = _lines(points for _, points in curves)
    return _plot("ROC curves", [*axes.parts(), _diagonal(), *lines, *legend])


def det_plot(curves: Sequence[Curve]) -> Markup:
    """Draw misses over false alarms on normal-deviate axes, where low rates are wide apart."""
    axes = _Axes(
        title="DET",
        across="false-positive rate",
        up="miss rate",
        x_ticks=_DET_TICKS,
        y_ticks=_DET_TICKS,
        x_scale=_deviate,
        y_scale=_deviate,
    )
    lines = _lines([(_deviate(x), _deviate(1 - y)) for x, y in points] for _, points in curves)
    legend = _legend([name for name, _ in curves], at_top=True)
    return _plot("DET curves", [*axes.parts(), *lines, *legend])


def reliability_plot(bins: Sequence[Bin]) -> Markup:
    """Draw the observed rate against the predicted risk; a dot's area is the size of its bin."""
    most = max((each.count for each in bins), default=1)
    dots = [
        element(
            "circle",
            element(
                "title",
                f"{counted(each.count, 'case')}, predicted {each.mean_score:.2f}, "
                f"observed {each.attack_share:.2f}",
            ),
            cx=_x(each.mean_score),
            cy=_y(each.attack_share),
            r=2 + 8 * math.sqrt(each.count / most),
            fill=colour(0),
            fill_opacity=".6",
        )
        for each in bins
    ]
    axes = _Axes(title="Reliability", across="risk", up="share of attacks")
    return _plot("Reliability", [*axes.parts(), _diagonal(), *dots])


def histogram(counts: Sequence[int]) -> Markup:
    """Draw how much of an attack was spoken when it was seen."""
    most = max(counts, default=0) or 1
    wide = 1 / max(1, len(counts))
    bars = [
        element(
            "rect",
            element("title", counted(count, "attack")),
            x=_x(n * wide) + 1,
            y=_y(count / most),
            width=_x(wide) - _x(0) - 2,
            height=_y(0) - _y(count / most),
            fill=colour(0),
        )
        for n, count in enumerate(counts)
    ]
    axes = _Axes(
        title="Turn of detection",
        across="share of the attack spoken",
        up=f"attacks, up to {most}",
        y_ticks=(),
    )
    return _plot("Turn of detection", [*axes.parts(), *bars])


def trajectories(misses: Sequence[Mistake]) -> Markup:
    """Draw the risk, turn by turn, of the attacks that looked least like it."""
    top = max((risk for miss in misses for risk in miss.risks), default=1.0) or 1.0
    lines = _lines([(x, risk / top) for x, risk in _spread(miss.risks)] for miss in misses)
    axes = _Axes(
        title="Worst misses",
        across="from first to last turn",
        up="risk",
        x_ticks=(),
        y_ticks=(0.0, float(f"{top:.2g}")),
        y_scale=lambda risk: risk / top,
    )
    legend = _legend([str(miss.id) for miss in misses], at_top=True)
    return _plot("Risk of the worst misses", [*axes.parts(), *lines, *legend])


def attribution_plot(found: Attribution) -> Markup:
    """Draw the matrix of what the row caught and the column missed."""
    size = len(found.names)
    return drawing(
        "Caught by the row, missed by the column",
        [*_rows(found), *_column_names(found)],
        width=_NAMES_LEFT + size * _CELL + 60,
        height=_NAMES_TOP + size * _CELL + 10,
    )


def _rows(found: Attribution) -> Iterator[Markup]:
    most = max((n for row in found.matrix for n in row), default=0) or 1
    for r, row in enumerate(found.matrix):
        y = _NAMES_TOP + r * _CELL
        yield label(_NAMES_LEFT - 6, y + _CELL / 2 + 4, found.names[r], "end")
        for c, count in enumerate(row):
            x = _NAMES_LEFT + c * _CELL
            yield element(
                "rect",
                x=x,
                y=y,
                width=_CELL - 2,
                height=_CELL - 2,
                fill=colour(0),
                fill_opacity=f"{0.08 + 0.8 * count / most:.2f}",
            )
            yield label(x + _CELL / 2 - 1, y + _CELL / 2 + 4, str(count))


def _column_names(found: Attribution) -> Iterator[Markup]:
    for c, name in enumerate(found.names):
        middle = _NAMES_LEFT + c * _CELL + _CELL / 2
        yield label(middle, _NAMES_TOP - 8, name, "start", f"rotate(-45 {middle} {_NAMES_TOP - 8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """The frame of a plot with its title, the names of its axes and their ticks."""

    title: str
    across: str
    up: str
    x_ticks: tuple[float, ...] = _PLAIN_TICKS
    y_ticks: tuple[float, ...] = _PLAIN_TICKS
    x_scale: Callable[[float], float] = float
    y_scale: Callable[[float], float] = float

    def parts(self) -> Iterator[Markup]:
        middle_x, middle_y = (_x(0) + _x(1)) / 2, (_y(0) + _y(1)) / 2
        yield element(
            "rect", x=_x(0), y=_y(1), width=_x(1) - _x(0), height=_y(0) - _y(1), class_="f"
        )
        yield label(middle_x, 16, self.title)
        yield label(middle_x, HEIGHT - 6, self.across)
        yield label(12, middle_y, self.up, "middle", f"rotate(-90 12 {middle_y})")
        for tick in self.x_ticks:
            yield label(_x(self.x_scale(tick)), _y(0) + 14, f"{tick:g}")
        for tick in self.y_ticks:
            yield label(_x(0) - 4, _y(self.y_scale(tick)) + 4, f"{tick:g}", "end")


def _plot(title: str, parts: Sequence[Markup]) -> Markup:
    return drawing(title, parts, width=WIDTH, height=HEIGHT)


def _lines(curves: Iterable[Points]) -> list[Markup]:
    return [
        polyline([(_x(x), _y(y)) for x, y in points], colour(place))
        for place, points in enumerate(curves)
    ]


def _diagonal() -> Markup:
    return element("line", x1=_x(0), y1=_y(0), x2=_x(1), y2=_y(1), class_="d")


def _legend(names: Sequence[str], *, at_top: bool = False) -> Iterator[Markup]:
    first = _y(1) + 14 if at_top else _y(0) - 8 - 13 * (len(names) - 1)
    for n, name in enumerate(names):
        y = first + 13 * n
        yield element("rect", x=_x(1) - 10, y=y - 7, width=8, height=8, fill=colour(n))
        yield label(_x(1) - 14, y, name, "end")


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
