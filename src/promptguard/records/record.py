"""One stored conversation, and the shapes it comes in: our own, OpenAI's logs, ShareGPT."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from promptguard.conversation import Message, Role, messages_from
from promptguard.errors import InputError
from promptguard.records.fields import FieldMap, as_text, walk

_ID_NAMES = ("custom_id", "request_id", "conversation_id", "response.id")
_WRAPPERS = ("request", "body")
_ABOUT = ("source", "license", "lang", "category", "pair", "attack_turn")
# `model` and the like are among the usual names of roles.
_SHAREGPT_ROLES = {
    **dict.fromkeys(("chatgpt", "bing", "bard", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "function_response"), "tool"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A conversation and what its file says about it; what it does not say is empty.

    `number` is the line (or row) in `file`, counted from 1. `label` and `attack_turn` are as
    the file spells them: who needs them checks them.
    """

    id: str | int
    messages: tuple[Message, ...]
    file: str
    number: int
    source: str = ""
    license: str = ""
    lang: str = ""
    label: str = ""
    category: str = ""
    pair: str = ""
    attack_turn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A line that holds no conversation, and why; `id` where the line at least had one."""

    file: str
    number: int
    reason: str
    id: str | int | None = None


def record_from(row: object, *, file: str, number: int, fields: FieldMap) -> Record:
    """Return the conversation in one row; raises InputError saying what is missing."""
    if not isinstance(row, Mapping):
        raise InputError("A record must be an object.")
    messages = _messages(row, fields)
    found = id_of(row, fields)
    return Record(
        id=f"{file}:{number}" if found is None else found,
        messages=messages,
        file=file,
        number=number,
        label=fields.label_of(row),
        **{name: as_text(fields.find(row, name)) for name in _ABOUT},
    )


def id_of(row: object, fields: FieldMap) -> str | int | None:
    """Return a row's id: its own field, else the ones that logs use."""
    if not isinstance(row, Mapping):
        return None
    for found in (walk(row, name) for name in (fields.id, *_ID_NAMES)):
        if isinstance(found, (str, int)) and not isinstance(found, bool) and found != "":
            return found
    return None


def _messages(row: Mapping[str, object], fields: FieldMap) -> tuple[Message, ...]:
    answers: list[tuple[Message, ...]] = []
    # In a loop: a stranger's requests within requests must not be deeper than calls may be.
    while (found := _own_messages(row, fields)) is None:
        answers.append(_answer(row))
        row = next(inner for name in _WRAPPERS if isinstance(inner := row.get(name), Mapping))
        # Inside a logged request the API's own names hold, whatever was mapped for the row.
        fields = FieldMap()
    return found + tuple(message for answer in reversed(answers) for message in answer)


def _own_messages(row: Mapping[str, object], fields: FieldMap) -> tuple[Message, ...] | None:
    """Return the messages of a row; None where it holds a logged request."""
    found = _listed(fields.find(row, "messages"))
    if found is not None:
        return messages_from(found) + _answer(row)
    if row.get("conversations") is not None:
        return messages_from(_sharegpt(_listed(row["conversations"])))
    if any(isinstance(row.get(name), Mapping) for name in _WRAPPERS):
        return None
    text = fields.find_text(row)
    if text is None and "input" in row:
        return _responses_input(row)
    if isinstance(text, str):
        return (Message(role=Role.USER, content=text),)
    raise InputError("The record has neither messages nor a text; name its fields.")


def _listed(value: object) -> object:
    """Read a list that a table keeps as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise InputError("messages must be a list, or JSON of one.") from None


def _sharegpt(items: object) -> list[object]:
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise InputError("conversations must be a list of messages.")
    return [_sharegpt_message(item, index) for index, item in enumerate(items)]


def _sharegpt_message(item: object, index: int) -> object:
    if not isinstance(item, Mapping):
        raise InputError(f"conversations[{index}] must be an object.")
    if "from" not in item:
        return item
    speaker = str(item["from"]).strip().lower()
    role = _SHAREGPT_ROLES.get(speaker, speaker)
    return {"role": role, "content": item.get("value"), "timestamp": item.get("timestamp")}


def _answer(row: Mapping[str, object]) -> tuple[Message, ...]:
    """Return the reply that a log keeps beside the request, where there is one."""
    # Some logs keep the choices beside the request's own fields.
    response = row.get("response", row)
    if isinstance(response, Mapping) and isinstance(response.get("body"), Mapping):
        response = response["body"]
    choices = response.get("choices") if isinstance(response, Mapping) else None
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not choices:
        return ()
    first = choices[0]
    message = first.get("message") if isinstance(first, Mapping) else None
    return messages_from([message]) if isinstance(message, Mapping) else ()


def _responses_input(row: Mapping[str, object]) -> tuple[Message, ...]:
    """Read the request of OpenAI's Responses API."""
    given = row["input"]
    if isinstance(given, str):
        return (Message(role=Role.USER, content=given),)
    if not isinstance(given, Sequence):
        raise InputError("input must be a text or a list.")
    # An output is a tool's, whichever kind of call it answers; other acts of the model say nothing.
    said = [i for i in given if isinstance(i, Mapping) and ("role" in i or "output" in i)]
    return messages_from(said)
