"""SVG written by hand: elements with escaped text and attributes, safe to put into a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

Point = tuple[float, float]
COLOURS = (
    "#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2",
    "#be185d", "#4d7c0f", "#6b7280", "#a16207", "#1e3a8a", "#f472b6",
)  # fmt: skip


def colour(place: int) -> str:
    """Return the colour of the n-th curve; they repeat after the last."""
    return COLOURS[place % len(COLOURS)]


def element(name: str, *inside: str, **attributes: str | float | None) -> Markup:
    """Return one element; `_` in an attribute's name stands for `-`, `class_` for `class`.

    Attributes that are None are left out, numbers get one decimal; text is escaped unless it
    is Markup already.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(_attribute(key), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    if not inside:
        return Markup("<{}{}/>").format(Markup(name), written)  # noqa: S704  names are ours
    whole = Markup("").join(inside)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, whole)  # noqa: S704


def drawing(
    title: str,
    parts: Iterable[str],
    *,
    width: float,
    height: float,
    is_scaled: bool = False,
    **attributes: str | None,
) -> Markup:
    """Return a whole drawing; `title` says in words what it shows.

    Where `is_scaled`, the page decides how large it is shown.
    """
    size = {} if is_scaled else {"width": f"{width:g}", "height": f"{height:g}"}
    return element(
        "svg",
        element("title", title),
        *parts,
        role="img",
        aria_label=title,
        viewBox=f"0 0 {width:g} {height:g}",
        **size,
        **attributes,
    )


def label(
    x: float, y: float, text: str, anchor: str = "middle", transform: str | None = None
) -> Markup:
    """Return a text at a place."""
    return element("text", text, x=x, y=y, text_anchor=anchor, transform=transform)


def polyline(points: Sequence[Point], stroke: str) -> Markup:
    """Return a line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", points=path, fill="none", stroke=stroke, stroke_width="1.6")


def _attribute(key: str) -> str:
    return str(escape(key.rstrip("_").replace("_", "-")))


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
