"""Drawings are well-formed whatever they are given, and nothing in them is taken for markup."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from promptguard.runs import plots
from promptguard.runs.report import Attribution, Bin, Mistake
from promptguard.runs.svg import COLOURS, colour, drawing, element, label, polyline

HOSTILE = '"><script>alert(1)</script>&'
INSIDE = (0.0, float(plots.WIDTH)), (0.0, float(plots.HEIGHT))


def numbers(found: ElementTree.Element, name: str) -> list[float]:
    """Return every attribute of this name in a drawing."""
    return [float(each.attrib[name]) for each in found.iter() if name in each.attrib]


def parsed(markup: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(str(markup))


def mistake(*risks: float) -> Mistake:
    return Mistake(id=HOSTILE, source="s", category="c", risks=risks)


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (element("g"), "<g/>"),
        (element("g", ""), "<g></g>"),
        (element("text", "a < b & c"), "<text>a &lt; b &amp; c</text>"),
        (element("g", Markup("<b/>")), "<g><b/></g>"),
        (element("g", class_="f", stroke_width="2"), '<g class="f" stroke-width="2"/>'),
        (element("g", x=1.0, y=0.25, r=-3), '<g x="1" y="0.2" r="-3"/>'),
        (element("g", x=None, y=0.0), '<g y="0"/>'),
        (element("g", title='say "hi"'), '<g title="say &#34;hi&#34;"/>'),
    ],
)
def test_an_element_escapes_text_and_attributes(made: Markup, written: str) -> None:
    """What is markup already stays; what is None is left out."""
    assert made == written


def test_colours_repeat_after_the_last() -> None:
    """A thirteenth curve looks like the first."""
    assert [colour(n) for n in (0, len(COLOURS) - 1, len(COLOURS))] == [
        COLOURS[0],
        COLOURS[-1],
        COLOURS[0],
    ]


def test_a_drawing_says_what_it_shows_and_how_large_it_is() -> None:
    """A scaled one leaves its size to the page and keeps its proportions."""
    fixed = parsed(drawing(HOSTILE, [], width=20, height=10.5))
    scaled = parsed(drawing("x", [], width=20, height=10.5, is_scaled=True, class_="c"))
    assert fixed.attrib["aria-label"] == fixed.findtext("title") == HOSTILE
    assert (fixed.attrib["width"], fixed.attrib["height"]) == ("20", "10.5")
    assert "width" not in scaled.attrib
    assert (scaled.attrib["viewBox"], scaled.attrib["class"]) == ("0 0 20 10.5", "c")


def test_a_line_without_points_is_empty() -> None:
    """No coordinate, and still an element."""
    assert parsed(polyline([], "red")).attrib["points"] == ""
    assert parsed(label(1, 2, HOSTILE)).text == HOSTILE


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.roc_plot([]),
        lambda: plots.det_plot([]),
        lambda: plots.reliability_plot([]),
        lambda: plots.histogram([]),
        lambda: plots.trajectories([]),
        lambda: plots.attribution_plot(Attribution()),
        lambda: plots.histogram([0, 0, 0]),
        lambda: plots.trajectories([mistake()]),
        lambda: plots.trajectories([mistake(0.0)]),
        lambda: plots.roc_plot([("x", [])]),
    ],
)
def test_nothing_to_draw_is_no_error(draw: Callable[[], Markup]) -> None:
    """A run without attacks, without cases or without misses still gets its page."""
    assert parsed(draw()).tag == "svg"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.roc_plot([(HOSTILE, [(0.0, 0.0), (0.3, 0.9), (1.0, 1.0)])]),
        lambda: plots.det_plot([(HOSTILE, [(0.0, 0.0), (1e-9, 0.5), (1.0, 1.0)])]),
        lambda: plots.trajectories([mistake(0.1, 0.9, 0.5), mistake(0.2)]),
    ],
)
def test_curves_stay_within_the_frame(draw: Callable[[], Markup]) -> None:
    """Also at rates of 0 and 1, which a normal deviate would put infinitely far away."""
    markup = draw()
    assert "<script" not in markup
    for line in parsed(markup).iter("polyline"):
        for point in line.attrib["points"].split():
            for value, (low, high) in zip(map(float, point.split(",")), INSIDE, strict=True):
                assert math.isfinite(value)
                assert low <= value <= high


def test_dots_are_as_large_as_their_bins() -> None:
    """By area, so that a bin four times as full is twice as wide."""
    bins = [
        Bin(low=0.0, high=0.5, count=1, mean_score=0.25, attack_share=0.1),
        Bin(low=0.5, high=1.0, count=4, mean_score=0.75, attack_share=1.0),
    ]
    found = parsed(plots.reliability_plot(bins))
    small, large = numbers(found, "r")
    assert large - 2 == pytest.approx(2 * (small - 2))
    assert "4 cases, predicted 0.75, observed 1.00" in "".join(found.itertext())


def test_bars_are_as_high_as_their_counts() -> None:
    """The fullest reaches the top and an empty one has no height."""
    found = parsed(plots.histogram([4, 0, 2]))
    frame, *bars = (float(each.attrib["height"]) for each in found.iter("rect"))
    assert bars == pytest.approx([frame, 0.0, frame / 2], abs=0.11)


def test_the_matrix_has_a_cell_for_each_pair_and_grows_with_them() -> None:
    """Names are escaped; the darkest cell is the highest count."""
    found = Attribution(names=("a", HOSTILE), matrix=((0, 8), (2, 0)))
    markup = plots.attribution_plot(found)
    assert "<script" not in markup
    cells = [each.attrib["fill-opacity"] for each in parsed(markup).iter("rect")]
    assert cells == ["0.08", "0.88", "0.28", "0.08"]
    one = parsed(plots.attribution_plot(Attribution(names=("a",), matrix=((0,),))))
    assert float(parsed(markup).attrib["width"]) > float(one.attrib["width"])
