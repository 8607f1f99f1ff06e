"""A request's JSON body: read strictly, with every text in it and the place where it stands.

What the guard reads must be what the model reads, so a body that two JSON parsers could
understand differently (repeated keys, keys in another case, another encoding) is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from promptguard.conversation import ComparableMessage, Role
from promptguard.risk.ledger import STRIPPED
from promptguard.service.errors import ApiError

Place = tuple[str | int, ...]
# A name, an enumeration value, an id: too short, and without blanks, to tell a model anything.
_IDENTIFIER = re.compile(r"\S{0,40}\Z")
_DATA_URL = re.compile(r"data:[\w/+.;=-]*;base64,(?=[A-Za-z0-9+/_\s=-]*\Z)")
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]{200,}={0,2}\s*\Z")
_PRINTABLE_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one request may hold."""

    max_messages: int
    max_chars: int


@dataclass(slots=True, kw_only=True)
class Reading:
    """The texts of a body as they are found.

    `messages` are the conversation, `contents` what stands beside it, `system` the
    application's prompt, `unjudged` the places of what cannot be read as text.
    """

    limits: Limits
    messages: list[ComparableMessage] = field(default_factory=list)
    contents: list[ComparableMessage] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)

    def message(self, role: Role, text: str, place: Place, *, origin: str = "") -> None:
        """Add a message; the developer's go to `system`, empty ones are left out."""
        self._check_length(text, place)
        if role is Role.SYSTEM:
            self.system.append(text)
            return
        item = ComparableMessage.of(role, text, origin=origin, place=place)
        if item.content:
            self.messages.append(item)

    def side_text(self, value: object, place: Place, *, origin: str = "") -> None:
        """Add the text of a field of a message as untrusted content."""
        text = self.prose(value, place)
        self.message(Role.TOOL, text, place, origin=origin or name_of(place))

    def content(self, value: object, place: Place, *, origin: str = "") -> None:
        """Add the text of a field of the body as untrusted content."""
        text = self.prose(value, place)
        origin = origin or name_of(place)
        self._check_length(text, place)
        item = ComparableMessage.of(Role.TOOL, text, origin=origin, place=place)
        if item.content:
            self.contents.append(item)

    def prose(self, value: object, place: Place) -> str:
        """Return all sentences in a value of any shape; notes what is not text."""
        found, opaque = prose_in(value)
        if opaque:
            self.unjudged.append(name_of(place))
        return "\n".join(found)

    def _check_length(self, text: str, place: Place) -> None:
        if len(text) > self.limits.max_chars:
            where = name_of(place)
            raise ApiError(
                413,
                f"{where} has {len(text)} characters, more than the "
                f"{self.limits.max_chars} accepted.",
                code="message_too_long",
                param=where,
            )


def read_json(raw: bytes, known: Collection[str] = ()) -> dict[str, object]:
    """Read one JSON object in UTF-8 without repeated keys; `known` as in `checked_object`."""
    try:
        body = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except ApiError:
        raise
    except (ValueError, RecursionError):
        raise ApiError(
            400, "The body is not valid JSON in UTF-8.", code="invalid_json", param="body"
        ) from None
    return checked_object(body, ("body",), known, "must be a JSON object")


def checked_object(
    item: object, place: Place, known: Collection[str], form: str
) -> dict[str, object]:
    """Return an object; `form` says what is wrong with anything else.

    Keys that a case-insensitive parser would take for one of `known` are refused.
    """
    if not isinstance(item, dict):
        raise invalid(name_of(place), form)
    for key in item:
        if key not in known and key.casefold() in known:
            raise invalid(
                name_of(place), f"has a key that is {key.casefold()!r} in another spelling"
            )
    return item


def checked_flag(body: Mapping[str, object], name: str) -> bool:
    """Return a field that is true, false or missing."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(name, "must be true or false")
    return bool(value)


def checked_model(body: Mapping[str, object]) -> str:
    """Return the model's name."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise invalid("model", "must name a model")
    return model


def check_count(items: Sequence[object], name: str, limits: Limits) -> None:
    """Refuse more messages than are accepted in one request."""
    if len(items) > limits.max_messages:
        raise ApiError(
            413,
            f"{name}: at most {limits.max_messages} are accepted in one request.",
            code="too_many_messages",
            param=name,
        )


def invalid(where: str, what: str) -> ApiError:
    """Return the error for a field of the wrong form."""
    return ApiError(400, f"{where} {what}.", code="invalid_field", param=where)


def name_of(place: Place) -> str:
    """Return a place as clients write it: `messages[3].tool_calls[0]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(parts).removeprefix(".")


def prose_in(value: object) -> tuple[list[str], bool]:
    """Return the sentences in a value of any depth, keys included, and whether bytes were in it.

    Strings that are JSON themselves, such as a tool call's arguments, are looked into.
    """
    found: list[str] = []
    has_bytes = False
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            pairs = list(item.items())
            waiting += [part for pair in pairs[::-1] for part in pair[::-1]]
        elif isinstance(item, (list, tuple)):
            waiting += reversed(item)
        elif isinstance(item, str):
            parsed = _parsed(item)
            if parsed is not None:
                waiting.append(parsed)
            elif is_bytes(item):
                text = _decoded(item)
                has_bytes = has_bytes or text is None
                found += [text] if text else []
            elif not _IDENTIFIER.match(item):
                found.append(item)
    return found, has_bytes


def is_bytes(text: str) -> bool:
    """Say whether a string is encoded data and not something to read."""
    return bool(_DATA_URL.match(text) or _BASE64.match(text))


def poisoned_in(
    items: Iterable[ComparableMessage], stripped: frozenset[str]
) -> list[ComparableMessage]:
    """Return the items that the model must not see, by their digests; never the user's words."""
    return [
        item
        for item in items
        if item.digest in stripped and item.place and item.role is not Role.USER
    ]


def with_stripped(body: Mapping[str, object], items: Iterable[ComparableMessage]) -> object:
    """Return the body with the texts of `items` replaced by a note."""
    changed: object = body
    for item in items:
        changed = _replaced(changed, item.place, item.content)
    return changed


def _replaced(value: object, place: Place, text: str) -> object:
    if not place:
        return _without(value, text)
    step, rest = place[0], place[1:]
    if isinstance(value, list) and isinstance(step, int):
        return [*value[:step], _replaced(value[step], rest, text), *value[step + 1 :]]
    if isinstance(value, Mapping) and isinstance(step, str):
        return {**value, step: _replaced(value[step], rest, text)}
    raise AssertionError("a place is read from the body it leads into")


def _without(value: object, text: str) -> object:
    """Return a value in which no sentence is left; a text within a longer one goes alone."""
    if isinstance(value, str):
        parsed = _parsed(value)
        if parsed is not None:
            return json.dumps(_without(parsed, text))
        if value.strip() != text and text in value:
            return value.replace(text, STRIPPED)
        return value if _IDENTIFIER.match(value) and value.strip() != text else STRIPPED
    if isinstance(value, list):
        return [_without(item, text) for item in value]
    if isinstance(value, Mapping):
        return {key: _without(item, text) for key, item in value.items() if _IDENTIFIER.match(key)}
    return value


def _parsed(text: str) -> object:
    """Return the object or list that a string is the JSON of, else None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, (dict, list)) else None


def _decoded(text: str) -> str | None:
    """Return the text that encoded data stands for, None where it is not text."""
    payload = _DATA_URL.sub("", text, count=1)
    try:
        raw = base64.b64decode(payload.translate({45: 43, 95: 47}) + "==", validate=False)
        decoded = raw.decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    printable = sum(char.isprintable() or char.isspace() for char in decoded)
    return decoded if printable >= _PRINTABLE_SHARE * len(decoded) else None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise ApiError(400, "The body repeats a key.", code="invalid_json", param="body")
    return body


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _finite(text: str) -> float:
    """Refuse numbers beyond a double: they would be sent on as Infinity, which is not JSON."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number
