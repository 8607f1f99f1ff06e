"""Native form controls: they are labelled, keyboard-usable and readable aloud by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

OnValue = Callable[[str], Awaitable[None] | None]
OnClick = Callable[[], Awaitable[None] | None]
Options = Sequence[tuple[str, str]]
_TYPING_PAUSE_S = 0.25


class Tag(TextElement):
    """Any HTML element with plain text in it."""

    def __init__(
        self, tag: str, text: str = "", /, *, classes: str = "", **attributes: str
    ) -> None:
        super().__init__(tag=tag, text=text)
        self.classes(classes)
        for key, value in attributes.items():
            self._props[key.strip("_").replace("_", "-")] = value

    def set_attribute(self, name: str, value: str | None) -> None:
        """Set an attribute, or take it away."""
        if value is None:
            self._props.pop(name, None)
        else:
            self._props[name] = value
        self.update()


def raw(content: str = "", *, tag: str = "div", classes: str = "") -> ui.html:
    """Place HTML that our own functions wrote; what came from outside is escaped in it."""
    return ui.html(content, sanitize=False, tag=tag).classes(classes)


def button(text: str, on_click: OnClick, *, classes: str = "", **attributes: str) -> Tag:
    """Place a button."""
    made = Tag("button", text, classes=f"button {classes}", type="button", **attributes)
    made.on("click", lambda _: on_click(), js_handler="() => emit(null)")
    return made


def search(name: str, label: str, on_value: OnValue, *, hint: str = "") -> Tag:
    """Place a search field that reports what is typed."""
    Tag("label", label, classes="sr-only", _for=name)
    field = Tag("input", id=name, type="search", placeholder=hint, autocomplete="off")
    field.on(
        "input",
        lambda event: on_value(_text(event)),
        throttle=_TYPING_PAUSE_S,
        leading_events=False,
        js_handler="(e) => emit(e.target.value)",
    )
    return field


def choice(
    name: str, label: str, options: Options, on_value: OnValue, *, is_label_shown: bool = True
) -> Tag:
    """Place a drop-down of (value, wording) pairs; a value not among them is ignored."""
    known = {value for value, _ in options}
    Tag("label", label, classes="" if is_label_shown else "sr-only", _for=name)

    def chosen(event: GenericEventArguments) -> Awaitable[None] | None:
        value = _text(event)
        return on_value(value) if value in known else None

    with Tag("select", id=name) as field:
        for value, wording in options:
            Tag("option", wording, value=value)
    field.on("change", chosen, js_handler="(e) => emit(e.target.value)")
    return field


def tick(name: str, label: str, on_value: Callable[[bool], Awaitable[None] | None]) -> Tag:
    """Place a checkbox with its label behind it."""
    with Tag("span", classes="tick"):
        field = Tag("input", id=name, type="checkbox")
        Tag("label", label, _for=name)
    field.on(
        "change",
        lambda event: on_value(event.args is True),
        js_handler="(e) => emit(e.target.checked)",
    )
    return field


def panel(title: str, *, classes: str = "", level: int = 2) -> Element:
    """Open a titled section; what is placed within `with` stands in it."""
    section = Tag("section", classes=f"panel {classes}")
    with section:
        Tag(f"h{level}", title)
    return section


def _text(event: GenericEventArguments) -> str:
    return event.args if isinstance(event.args, str) else ""
