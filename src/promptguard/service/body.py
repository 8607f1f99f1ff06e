"""A request's JSON body: read strictly, with every text in it and the place where it stands.

What the guard reads must be what the model reads, so a body that two JSON parsers could
understand differently (repeated keys, keys in another case, another encoding) is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from promptguard.config import ControllerConfig, ServiceConfig
from promptguard.conversation import ComparableMessage, Role, without_lone_surrogates
from promptguard.risk.ledger import STRIPPED
from promptguard.service.encoded import decoded_text, is_bytes
from promptguard.service.errors import ApiError

Place = tuple[str | int, ...]
# A name, an enumeration value, an id: too short, and without blanks, to tell a model anything.
# Only in alphabets that write words apart: forty Chinese characters are a whole order, and
# invisible ones can spell another text.
_IDENTIFIER = re.compile(r"[!-~\u00c0-\u02af\u0370-\u058f]{0,40}\Z")
# Where a part of a message keeps its words, which were read as a line, however short.
_WORDS = ("text", "refusal")
# So many names in one list are words of a sentence.
_LISTED_WORDS = 6
# What is taken apart by recursion, here and by the JSON encoder, must not be deeper.
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one request may hold."""

    max_messages: int
    max_chars: int

    @classmethod
    def of(cls, service: ServiceConfig, conversation: ControllerConfig) -> Limits:
        """Return what the settings allow."""
        return cls(max_messages=service.max_messages, max_chars=conversation.max_chars)


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
        elif (item := ComparableMessage.of(role, text, origin=origin, place=place)).content:
            self.messages.append(item)

    def side_text(self, value: object, place: Place) -> None:
        """Add the text of a field of a message as untrusted content."""
        self.message(Role.TOOL, self.prose(value, place), place, origin=_origin_of(place))

    def content(self, value: object, place: Place) -> None:
        """Add the text of a field of the body as untrusted content."""
        text, origin = self.prose(value, place), _origin_of(place)
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
        if len(text) > (most := self.limits.max_chars):
            where = name_of(place)
            message = f"{where} has {len(text)} characters, more than the {most} accepted."
            raise ApiError(413, message, code="message_too_long", param=where)


def read_json(raw: bytes, known: Collection[str] = ()) -> dict[str, object]:
    """Read one JSON object in UTF-8 without repeated keys; `known` as in `checked_object`."""
    try:
        body = strict_json(raw)
    except (ValueError, RecursionError):
        message = "The body is not valid JSON in UTF-8."
        raise ApiError(400, message, code="invalid_json", param="body") from None
    return checked_object(body, ("body",), known, "must be a JSON object")


def strict_json(raw: bytes) -> object:
    """Read JSON that no other parser reads differently; raises ApiError or what `json` raises."""
    body = json.loads(
        # `json.loads` would guess UTF-16 and UTF-32 from bytes, and another parser would not.
        raw.decode("utf-8"),
        object_pairs_hook=_without_repeats,
        parse_constant=_finite,
        parse_float=_finite,
    )
    if _is_deep(body):
        raise invalid("body", f"is nested more than {MAX_DEPTH} deep")
    return body


def checked_object(
    item: object, place: Place, known: Collection[str], form: str
) -> dict[str, object]:
    """Return an object; `form` says what is wrong with anything else.

    Keys that a case-insensitive parser would take for one of `known` are refused.
    """
    if not isinstance(item, dict):
        raise invalid(name_of(place), form)
    for key in item:
        if key not in known and (other := key.casefold()) in known:
            raise invalid(name_of(place), f"has a key that is {other!r} in another spelling")
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
    if len(items) > (most := limits.max_messages):
        message = f"{name}: at most {most} are accepted in one request."
        raise ApiError(413, message, code="too_many_messages", param=name)


def invalid(where: str, what: str) -> ApiError:
    """Return the error for a field of the wrong form."""
    return ApiError(400, f"{where} {what}.", code="invalid_field", param=where)


def name_of(place: Place) -> str:
    """Return a place as clients write it: `messages[3].tool_calls[0]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return without_lone_surrogates("".join(parts).removeprefix("."))


def _origin_of(place: Place) -> str:
    """Return a place as it may be logged and stored: a client's key can be a whole sentence."""
    return name_of(tuple(s if isinstance(s, int) or _IDENTIFIER.match(s) else "?" for s in place))


def prose_in(value: object) -> tuple[list[str], bool]:
    """Return the sentences in a value of any depth, keys included, and whether bytes were in it.

    Strings that are JSON themselves, such as a tool call's arguments, are looked into. Single
    words are names, unless a list has so many that they may be a sentence.
    """
    found: list[str] = []
    has_bytes = False
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            pairs = list(item.items())
            # Reversed, because a stack gives back the last first, and texts must keep their order.
            waiting += [part for pair in pairs[::-1] for part in pair[::-1]]
        elif isinstance(item, (list, tuple)):
            words = _words_in(item)
            found += [" ".join(words)] if words else []
            waiting += reversed(item)
        elif isinstance(item, str):
            parsed = _parsed(item, _with_repeats)
            if parsed is not None:
                waiting.append(parsed)
            elif is_bytes(item):
                text = decoded_text(item)
                has_bytes = has_bytes or text is None
                found += [text] if text else []
            elif not _IDENTIFIER.match(item):
                found.append(item)
    return found, has_bytes


def _words_in(items: Sequence[object]) -> list[str]:
    """Return the names in a list that are too many to be only names."""
    words = [item for item in items if isinstance(item, str) and item and _IDENTIFIER.match(item)]
    return words if len(words) >= _LISTED_WORDS else []


def poisoned_in(
    items: Iterable[ComparableMessage], stripped: frozenset[str]
) -> list[ComparableMessage]:
    """Return the items that the model must not see, by their digests; never the user's words."""
    return [
        item
        for item in items
        # What a user said is judged and blocked, never edited.
        if item.digest in stripped and item.place and item.role is not Role.USER
    ]


def with_stripped(body: Mapping[str, object], items: Iterable[ComparableMessage]) -> object:
    """Return the body with the texts of `items` replaced by a note."""
    changed: object = body
    # The inner ones first: what is taken out of a list moves what stands behind it.
    for item in sorted(items, key=lambda item: -len(item.place)):
        changed = _replaced(changed, item.place, item.content)
    return changed


def _replaced(value: object, place: Place, text: str) -> object:
    if not place:
        return _without(value, text, frozenset(text.split("\n")))
    step, rest = place[0], place[1:]
    if isinstance(value, list) and isinstance(step, int):
        # Copied along the path alone; the body itself stays as it came.
        return [*value[:step], _replaced(value[step], rest, text), *value[step + 1 :]]
    if isinstance(value, Mapping) and isinstance(step, str):
        return {**value, step: _replaced(value[step], rest, text)}
    raise AssertionError("a place is read from the body it leads into")


def _without(value: object, text: str, lines: frozenset[str]) -> object:
    """Return a value in which no sentence is left, nor any of the text's own `lines`."""
    if isinstance(value, str):
        if value.strip() == text:
            return STRIPPED
        parsed = _parsed(value)
        if parsed is not None:
            return json.dumps(_without(parsed, text, lines))
        # A text within a longer one goes alone.
        if text in value:
            return value.replace(text, STRIPPED)
        return value if _IDENTIFIER.match(value) else STRIPPED
    if isinstance(value, list):
        words = set(_words_in(value))
        others = [i for i in value if not (isinstance(i, str) and (i in words or i in lines))]
        note = [STRIPPED] if len(others) < len(value) else []
        return [*(_without(item, text, lines) for item in others), *note]
    if isinstance(value, Mapping):
        # A key that is a sentence is read by the model as well, so the whole pair goes.
        kept = {key: item for key, item in value.items() if _IDENTIFIER.match(key)}
        said = {key for key in _WORDS if isinstance(kept.get(key), str) and kept[key] in lines}
        return {k: STRIPPED if k in said else _without(v, text, lines) for k, v in kept.items()}
    return value


def _parsed(text: str, pairs: Callable[[list[tuple[str, object]]], object] = dict) -> object:
    """Return the object or list that a string is the JSON of, else None.

    None too where it is nested too deep to be taken apart: it is read as a text then.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        parsed = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, (dict, list)) and not _is_deep(parsed) else None


def _with_repeats(pairs: list[tuple[str, object]]) -> object:
    """Return an object; where it repeats a key its pairs, since a model reads all of them."""
    unique = dict(pairs)
    return unique if len(unique) == len(pairs) else [part for pair in pairs for part in pair]


def _is_deep(value: object) -> bool:
    # By levels and not by recursion: the depth that is measured could exhaust the stack.
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            part
            for item in level
            for part in (item.values() if isinstance(item, dict) else item)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return False
    return True


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise ApiError(400, "The body repeats a key.", code="invalid_json", param="body")
    return body


def _finite(text: str) -> float:
    """Refuse NaN, and numbers beyond a double: sent on as Infinity, they would be no JSON."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
