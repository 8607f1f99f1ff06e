"""The drawings: well-formed, labelled, and true to their numbers."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.risk.weights import shipped_weights
from promptguard.service.dashboard.charts import (
    Bar,
    Point,
    evidence_bars,
    sparkline,
    trajectory,
)
from promptguard.state import ModeEntry
from promptguard.verdict import Action, Mode

STARTS = shipped_weights().modes.starts()
RISKS = st.floats(min_value=0, max_value=1)
NATS = st.floats(min_value=-30, max_value=30)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def points(*risks: float, action: Action = Action.ALLOW) -> tuple[Point, ...]:
    return tuple(
        Point(turn=turn, risk=risk, mode=Mode.SAFE, action=action)
        for turn, risk in enumerate(risks, start=1)
    )


@given(st.lists(RISKS, max_size=10), st.sampled_from(Mode))
def test_every_sparkline_is_well_formed_and_labelled(risks: list[float], mode: Mode) -> None:
    """Whatever a session's risks, the drawing parses and says what it shows."""
    root = parsed(sparkline(risks, mode))
    assert root.get("role") == "img"
    assert root.get("aria-label")


@given(st.lists(RISKS, max_size=30))
def test_every_trajectory_stays_inside_its_frame(risks: list[float]) -> None:
    """No point is drawn outside, and the drawing parses."""
    svg = trajectory(points(*risks), STARTS)
    root = parsed(svg)
    width, height = (float(part) for part in root.get("viewBox", "").split()[2:])
    for circle in root.iter("circle"):
        assert 0 <= float(circle.get("cx", "")) <= width
        assert 0 <= float(circle.get("cy", "")) <= height


@given(st.lists(NATS, min_size=1, max_size=12))
def test_bars_are_as_long_as_their_evidence(values: list[float]) -> None:
    """Lengths are in proportion, and every bar lies inside the drawing."""
    svg = evidence_bars([Bar(name=f"s{i}", nats=v) for i, v in enumerate(values)], title="t")
    root = parsed(svg)
    width = float(root.get("viewBox", "").split()[2])
    rects = [(float(r.get("x", "")), float(r.get("width", ""))) for r in root.iter("rect")]
    assert all(x >= -0.2 and x + length <= width + 1.0 for x, length in rects)
    drawn = [(abs(value), length) for value, (_, length) in zip(values, rects, strict=True)]
    for (small, short), (large, long) in zip(sorted(drawn), sorted(drawn)[1:], strict=False):
        assert short <= long + 0.11 or math.isclose(small, large)


def test_a_bar_for_and_a_bar_against_lie_on_both_sides_of_zero() -> None:
    """Evidence for an attack goes right, evidence against it left."""
    root = parsed(evidence_bars([Bar(name="a", nats=2), Bar(name="b", nats=-1)], title="t"))
    zero = float(next(root.iter("line")).get("x1", ""))
    right, left = list(root.iter("rect"))
    assert float(right.get("x", "")) == pytest.approx(zero, abs=0.1)
    assert float(left.get("x", "")) + float(left.get("width", "")) == pytest.approx(zero, abs=0.2)


def test_no_evidence_is_said_in_words() -> None:
    """An empty drawing would say nothing."""
    assert "No evidence" in evidence_bars([], title="t")


def test_the_trajectory_names_the_turn_where_a_mode_was_reached() -> None:
    """The flag and the spoken description give mode and turn."""
    entered = (ModeEntry(turn=2, mode=Mode.SUSPECT), ModeEntry(turn=3, mode=Mode.UNSAFE))
    svg = trajectory(points(0.1, 0.6, 0.9), STARTS, entered)
    assert "SUSPECT at 2" in svg
    assert "First reached: SUSPECT at turn 2, UNSAFE at turn 3." in svg


def test_modes_reached_in_one_turn_share_a_flag() -> None:
    """The highest of them is named."""
    entered = tuple(ModeEntry(turn=2, mode=mode) for mode in Mode if mode is not Mode.SAFE)
    svg = trajectory(points(0.1, 0.9), STARTS, entered)
    assert re.findall(r"(\w+) at 2</text>", svg) == ["UNSAFE"]


def test_every_band_is_drawn_and_they_fill_the_whole_height() -> None:
    """The bands of the six modes leave no gap."""
    root = parsed(trajectory(points(0.5), STARTS))
    bands = [r for r in root.iter("rect") if "band" in r.get("class", "")]
    assert len(bands) == len(Mode)
    heights = sum(float(band.get("height", "")) for band in bands)
    tops = [float(band.get("y", "")) for band in bands]
    assert heights == pytest.approx(
        max(tops) - min(tops) + float(bands[0].get("height", "")), abs=0.5
    )


def test_a_blocked_turn_is_marked_by_shape_as_well_as_colour() -> None:
    """Those who see no colour see the cross."""
    assert 'class="cross"' in trajectory(points(0.9, action=Action.BLOCK), STARTS)
    assert 'class="cross"' not in trajectory(points(0.9), STARTS)


def test_another_configuration_is_a_second_line() -> None:
    """A replay is drawn beside the original."""
    svg = trajectory(points(0.1, 0.2), STARTS, other=points(0.5, 0.6))
    assert 'class="risk other"' in svg


def test_a_very_long_session_is_thinned_and_keeps_its_peak() -> None:
    """Ten thousand turns draw hundreds of dots, the riskiest among them."""
    risks = [0.1] * 10_000
    risks[7_777] = 0.97
    svg = trajectory(points(*risks), STARTS)
    assert svg.count("<circle") <= 600
    assert "Turn 7778: risk 0.97" in svg


def test_names_and_reasons_are_escaped() -> None:
    """Nothing in a drawing is markup from outside."""
    svg = evidence_bars([Bar(name="<b>", nats=1, reason="<script>")], title='"x"')
    assert "<b>" not in svg
    assert "<script>" not in svg
    parsed(svg)
