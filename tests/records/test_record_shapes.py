"""One row becomes one conversation, or an error that says what is missing and quotes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from promptguard.errors import InputError
from promptguard.records.fields import FieldMap, as_text
from promptguard.records.record import Record, id_of, record_from

HELLO = [{"role": "user", "content": "hello"}]
REPLY = {"message": {"role": "assistant", "content": "hi"}}


def read(row: object, **fields: Any) -> Record:
    return record_from(row, file="a.jsonl", number=7, fields=FieldMap(**fields))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([], "must be an object"),
        ("text", "must be an object"),
        (None, "must be an object"),
        ({}, "neither messages nor a text"),
        ({"prompt": None}, "neither messages nor a text"),
        ({"prompt": 3}, "neither messages nor a text"),
        ({"prompt": ["a"]}, "neither messages nor a text"),
        ({"messages": None}, "neither messages nor a text"),
        ({"messages": "hello"}, "a list, or JSON of one"),
        ({"messages": '"hello"'}, "must be a list of messages"),
        ({"messages": "[" * 10_000}, "a list, or JSON of one"),
        ({"messages": {"role": "user"}}, "must be a list of messages"),
        ({"conversations": "hello"}, "a list, or JSON of one"),
        ({"conversations": {"from": "human"}}, "conversations must be a list"),
        ({"conversations": ["hello"]}, r"conversations\[0\] must be an object"),
        ({"conversations": [{"from": "nobody", "value": "x"}]}, r"messages\[0\]\.role"),
        ({"input": 3}, "input must be a text or a list"),
        ({"input": [{"type": "reasoning"}]}, "empty"),
        ({"request": {"model": "m"}}, "neither messages nor a text"),
        ({"messages": [{"role": "user", "content": "x", "timestamp": 1e999}]}, "finite"),
    ],
)
def test_a_row_without_a_conversation_says_what_is_missing(row: object, said: str) -> None:
    """Nothing is judged in part, and nothing of the row is repeated."""
    with pytest.raises(InputError, match=said) as refused:
        read(row)
    assert "hello" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "roles"),
    [
        ({"messages": '[{"role": "user", "content": "x"}]'}, "user"),
        ({"messages": HELLO, "choices": [REPLY]}, "user assistant"),
        ({"messages": HELLO, "choices": []}, "user"),
        ({"messages": HELLO, "choices": "none"}, "user"),
        ({"messages": HELLO, "choices": [{"text": "x"}]}, "user"),
        ({"messages": HELLO, "choices": ["x"]}, "user"),
        ({"messages": HELLO, "response": "failed"}, "user"),
        ({"messages": HELLO, "response": {"choices": [REPLY, REPLY]}}, "user assistant"),
        ({"request": {"prompt": "x"}, "response": {"body": {"choices": [REPLY]}}},
         "user assistant"),
        ({"body": {"request": {"messages": HELLO}}}, "user"),
        ({"conversations": [{"from": " GPT ", "value": "x"}]}, "assistant"),
        ({"conversations": [{"from": "function_call", "value": "x"}]}, "assistant"),
        ({"conversations": [{"role": "tool", "content": "x"}]}, "tool"),
        ({"input": [HELLO[0], "stray", {"type": "function_call_output", "output": "o"}]},
         "user tool"),
        ({"text": "x", "input": "y"}, "user"),
        ({"prompt": ""}, "user"),
    ],
)  # fmt: skip
def test_each_shape_of_log_is_read(row: dict[str, Any], roles: str) -> None:
    """Replies beside a request are taken where they have a message, the first of several."""
    assert " ".join(message.role.value for message in read(row).messages) == roles


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": "a", "custom_id": "b"}, "a"),
        ({"id": 0}, 0),
        ({"id": ""}, None),
        ({"id": True}, None),
        ({"id": 1.5}, None),
        ({"id": ["a"]}, None),
        ({"id": None, "request_id": "r"}, "r"),
        ({"conversation_id": 3}, 3),
        ({"response": {"id": "resp"}}, "resp"),
        ({"response.id": "flat"}, "flat"),
        ("no row", None),
    ],
)
def test_an_id_is_a_text_or_a_whole_number(row: object, found: str | int | None) -> None:
    """Its own field first, then those that logs use."""
    assert id_of(row, FieldMap()) == found


def test_what_a_file_says_of_a_record_is_kept_as_text() -> None:
    """Only plain values; a label in the spelling that is used here."""
    row = {
        "messages": HELLO,
        "lang": None,
        "category": {"deep": 1},
        "source": 3,
        "pair": True,
        "meta": {"kind": "1"},
    }
    record = read(row, label="meta.kind", labels={"1": "attack"})
    assert (record.id, record.file, record.number) == ("a.jsonl:7", "a.jsonl", 7)
    assert (record.lang, record.category, record.source, record.pair) == ("", "", "3", "true")
    assert record.label == "attack"
    assert read(row | {"label": "  BENIGN "}).label == "benign"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), ("", ""), (0, "0"), (1.5, "1.5"), (False, "false"), ([], ""), (b"x", "")],
)
def test_only_plain_values_are_text(value: object, text: str) -> None:
    """A list or bytes would show up as Python writes them."""
    assert as_text(value) == text


def test_a_name_with_a_dot_is_a_field_before_it_is_a_path() -> None:
    """Tables flatten their columns."""
    fields = FieldMap(text="a.b", label="a.c")
    flat, deep = {"a.b": "flat", "a": {"b": "deep"}}, {"a": {"b": "deep"}}
    assert (fields.find_text(flat), fields.find_text(deep)) == ("flat", "deep")
    assert fields.find({"a": "no object"}, "label") is None
    assert FieldMap().find_text({"user_input": "u", "text": "t"}) == "t"


def test_what_tools_brought_is_read_from_a_logged_response() -> None:
    """Outputs of shells and of a server's own tools are judged, as the gateway judges them."""
    outputs = [
        {"type": "local_shell_call_output", "output": "of a shell"},
        {"type": "shell_call_output", "output": [{"stdout": "of another"}]},
        {"type": "mcp_call", "name": "search", "output": "of a server"},
        {"type": "custom_tool_call_output", "output": "of a tool"},
    ]
    found = read({"input": [HELLO[0], {"type": "reasoning", "summary": []}, *outputs]})
    said = ["hello", "of a shell", "of another", "of a server", "of a tool"]
    assert [message.content for message in found.messages] == said
    assert {message.role.value for message in found.messages[1:]} == {"tool"}
