"""What was said: roles, messages, how they are recognised and read from plain data."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from promptguard.errors import InputError

_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


# Every name of a role, with the aliases in common use.
ROLES = {
    **{role.value: role for role in Role},
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
    "human": Role.USER,
    "gpt": Role.ASSISTANT,
    "bot": Role.ASSISTANT,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; `timestamp` is in seconds since the epoch where it is known."""

    role: Role
    content: str
    timestamp: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableMessage(Message):
    """A message with the hash by which the store recognises it.

    `origin` names the field it came from, and `place` is the way to it in the request's body.
    """

    digest: str
    origin: str = ""
    place: tuple[str | int, ...] = ()

    @classmethod
    def of(
        cls, role: Role, text: str, *, origin: str = "", place: tuple[str | int, ...] = ()
    ) -> ComparableMessage:
        """Return a message without what clients drop: outer blanks and a model's reasoning."""
        if role is Role.ASSISTANT:
            text = _THINKING.sub("", text)
        bare = without_lone_surrogates(text).strip()
        return cls(role=role, content=bare, digest=content_hash(bare), origin=origin, place=place)


def thinking_in(text: str) -> str:
    """Return the reasoning that an assistant message begins with, if any."""
    match = _THINKING.match(text)
    return match[0].strip() if match else ""


def content_hash(text: str) -> str:
    """Return the hash by which a text is recognised without being kept."""
    # Half a surrogate pair has no strict UTF-8 form, and such a text must be recognised too.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def without_lone_surrogates(text: str) -> str:
    """Return `text` as valid Unicode: half a surrogate pair becomes U+FFFD."""
    # By way of UTF-16, two halves that came as separate characters become one again.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """Return text that every database and file takes as text: without NUL and broken Unicode."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def role_of(name: object, *, where: str = "role") -> Role:
    """Return the role called `name`, accepting the aliases in common use."""
    role = ROLES.get(name.strip().lower()) if isinstance(name, str) else None
    if role is None:
        known = ", ".join(role.value for role in Role)
        raise InputError(f"{where} is not a role; use one of {known}.")
    return role


def text_of(content: object, *, where: str = "content") -> str:
    """Return the text of a message's content: a string, or OpenAI's list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InputError(f"{where} must be a string or a list of parts.")
    return "\n".join(text for part in content for text in _texts_in(part, where) if text)


def _texts_in(part: object, where: str) -> list[str]:
    if isinstance(part, str):
        return [part]
    if part is None or isinstance(part, (int, float, bytes)):
        raise InputError(f"{where} holds a part that is neither text nor an object.")
    if not isinstance(part, Mapping):
        found = [getattr(part, "text", "")]
    else:
        # A shell's output has two texts, and the Assistants API puts one in an object.
        found = [part.get(name) for name in ("text", "stdout", "stderr")]
        found = [text.get("value") if isinstance(text, Mapping) else text for text in found]
    return [text for text in found if isinstance(text, str)]


def messages_from(items: object) -> tuple[Message, ...]:
    """Read a conversation: one message per item, in order.

    Items are Messages, objects as OpenAI's chat and Responses APIs write them, or objects with
    `type` or `role` and `content`, as LangChain's are. What carries no words (a call, a model's
    reasoning) becomes an empty message of the assistant. Raises InputError naming the item that
    has the wrong shape.
    """
    items = _listed(items)
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise InputError("A conversation must be a list of messages.")
    if not items:
        raise InputError("The conversation is empty; give at least one message.")
    return tuple(_message_from(item, f"messages[{n}]") for n, item in enumerate(items))


def _listed(items: object) -> object:
    """Return an array (a table's column of lists) as a list."""
    to_list = getattr(items, "tolist", None)
    return to_list() if callable(to_list) else items


def _message_from(item: object, where: str) -> Message:
    if isinstance(item, Message):
        return item
    if not isinstance(item, Mapping):
        return _message_of_object(item, where)
    if "role" not in item:
        return _message_of_item(item, where)
    # An assistant's message that only calls tools may leave the content out.
    if "content" not in item and "tool_calls" not in item:
        raise InputError(f"{where} has no content.")
    return Message(
        role=role_of(item["role"], where=f"{where}.role"),
        content=text_of(_listed(item.get("content")), where=f"{where}.content"),
        timestamp=_seconds(item.get("timestamp"), f"{where}.timestamp"),
    )


def _seconds(stamp: object, where: str) -> float | None:
    if stamp is None:
        return None
    # To Python a bool is an int, and an int may be longer than any float.
    is_bool = isinstance(stamp, bool)
    if is_bool or not isinstance(stamp, (int, float)) or not abs(stamp) <= sys.float_info.max:
        raise InputError(f"{where} must be a finite number of seconds.")
    return float(stamp)


def _message_of_item(item: Mapping[str, object], where: str) -> Message:
    """Read an item of the Responses API that is no message: a tool's output, or a model's act."""
    kind = item.get("type")
    if not isinstance(kind, str):
        raise InputError(f"{where} has no role.")
    output = item.get("output")
    # A call to a server's own tool carries its result in the same item.
    if kind.endswith("_output") or output is not None:
        parts = [output] if isinstance(output, Mapping) else output
        return Message(role=Role.TOOL, content=text_of(parts, where=f"{where}.output"))
    return Message(role=Role.ASSISTANT, content="")


def _message_of_object(item: object, where: str) -> Message:
    """Read a message that is an object of another library, by its attributes."""
    kind = getattr(item, "role", None) or getattr(item, "type", None)
    if kind is None or not hasattr(item, "content"):
        raise InputError(f"{where} must be an object with role and content.")
    # LangChain calls the streamed parts of an answer `AIMessageChunk`.
    name = str(getattr(kind, "value", kind)).lower().removesuffix("messagechunk")
    return Message(
        role=role_of(name, where=f"{where}.role"),
        content=text_of(item.content, where=f"{where}.content"),
    )
