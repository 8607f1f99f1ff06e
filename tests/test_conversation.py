"""Messages are read from plain data in every shape in use, and recognised by their hash."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.conversation import (
    ComparableMessage,
    Message,
    Role,
    content_hash,
    messages_from,
    role_of,
    text_of,
    thinking_in,
    without_lone_surrogates,
)
from promptguard.errors import InputError


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("user", Role.USER),
        ("  Human ", Role.USER),
        ("developer", Role.SYSTEM),
        ("SYSTEM", Role.SYSTEM),
        ("ai", Role.ASSISTANT),
        ("gpt", Role.ASSISTANT),
        ("bot", Role.ASSISTANT),
        ("Model", Role.ASSISTANT),
        ("function", Role.TOOL),
        ("tool\n", Role.TOOL),
        (Role.ASSISTANT, Role.ASSISTANT),
    ],
)
def test_a_role_is_known_by_all_its_names(name: str, role: Role) -> None:
    """Case and outer blanks do not matter."""
    assert role_of(name) is role


@pytest.mark.parametrize(
    "name", ["", " ", "root", "user:", "usér", None, 1, True, ["user"], b"user"]
)
def test_what_is_no_role_is_refused_without_quoting_it(name: object) -> None:
    """The message names the place and the known roles, never what was given."""
    with pytest.raises(InputError, match=r"^messages\[3\]\.role is not a role; use one of system"):
        role_of(name, where="messages[3].role")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        ([], ""),
        (["one", "", "two"], "one\ntwo"),
        ([{"type": "text", "text": "one"}, {"type": "image_url"}], "one"),
        ([{"text": None}, {"text": 7}, {"text": ["nested"]}], ""),
        (({"text": "a"}, {"text": "b"}), "a\nb"),
        ([SimpleNamespace(text="of an object"), SimpleNamespace(kind="other")], "of an object"),
        ([SimpleNamespace(text=3)], ""),
        ([{"type": "text", "text": {"value": "of a thread", "annotations": []}}], "of a thread"),
    ],
)
def test_the_text_of_a_content_is_that_of_its_parts(content: object, text: str) -> None:
    """Parts without words are passed over."""
    assert text_of(content) == text


@pytest.mark.parametrize("content", [7, 1.5, {"text": "x"}, [None], ["a", 3], [b"bytes"], object()])
def test_a_content_of_another_form_is_an_error(content: object) -> None:
    """Nothing that a model might read goes by unread."""
    with pytest.raises(InputError, match="content"):
        text_of(content)


class Table(list[Any]):
    """A column of a table, which says how to become a list."""

    def tolist(self) -> list[Any]:
        return list(self)


@pytest.mark.parametrize(
    ("item", "role", "text"),
    [
        ({"role": "user", "content": "hi"}, Role.USER, "hi"),
        ({"role": "user", "content": Table(["a", "b"])}, Role.USER, "a\nb"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, Role.ASSISTANT, ""),
        ({"role": "assistant", "content": None}, Role.ASSISTANT, ""),
        ({"type": "function_call_output", "output": "42"}, Role.TOOL, "42"),
        ({"type": "custom_tool_call_output", "output": [{"text": "x"}]}, Role.TOOL, "x"),
        ({"type": "function_call", "arguments": "{}"}, Role.ASSISTANT, ""),
        ({"type": "reasoning", "summary": []}, Role.ASSISTANT, ""),
        (SimpleNamespace(type="human", content="of LangChain"), Role.USER, "of LangChain"),
        (SimpleNamespace(type="AIMessageChunk", content=["x"]), Role.ASSISTANT, "x"),
        (SimpleNamespace(role=Role.TOOL, content=""), Role.TOOL, ""),
        (Message(role=Role.SYSTEM, content="as it is"), Role.SYSTEM, "as it is"),
    ],
)
def test_every_shape_of_message_is_read(item: object, role: Role, text: str) -> None:
    """OpenAI's two APIs, objects of other libraries, and our own."""
    (message,) = messages_from([item])
    assert (message.role, message.content) == (role, text)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("hello", "a list of messages"),
        (b"hello", "a list of messages"),
        (None, "a list of messages"),
        ({"role": "user", "content": "x"}, "a list of messages"),
        ([], "empty"),
        (Table(), "empty"),
        ([{"role": "user"}], r"messages\[0\] has no content"),
        ([{"content": "x"}], r"messages\[0\] has no role"),
        ([{"type": 3}], r"messages\[0\] has no role"),
        ([{"role": "user", "content": "x"}, "y"], r"messages\[1\] must be an object"),
        ([SimpleNamespace(role="user")], r"messages\[0\] must be an object"),
        ([SimpleNamespace(content="x")], r"messages\[0\] must be an object"),
        ([{"role": "king", "content": "x"}], r"messages\[0\]\.role is not a role"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content must be"),
        ([{"type": "x_output", "output": 3}], r"messages\[0\]\.output must be"),
        ([{"role": "user", "content": "x", "timestamp": "now"}], r"messages\[0\]\.timestamp"),
        ([{"role": "user", "content": "x", "timestamp": True}], r"messages\[0\]\.timestamp"),
        ([{"role": "user", "content": "x", "timestamp": math.nan}], r"messages\[0\]\.timestamp"),
        ([{"role": "user", "content": "x", "timestamp": -math.inf}], r"messages\[0\]\.timestamp"),
        ([{"role": "user", "content": "x", "timestamp": 10**400}], r"messages\[0\]\.timestamp"),
    ],
)
def test_what_is_no_conversation_is_an_error_that_names_the_item(items: object, said: str) -> None:
    """Counted from 0, as the caller's own list is."""
    with pytest.raises(InputError, match=said):
        messages_from(items)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "shell_call_output", "output": [{"stdout": "a", "stderr": "b"}]}, "a\nb"),
        ({"type": "mcp_call", "arguments": "{}", "output": "a"}, "a"),
        ({"type": "computer_call_output", "output": {"image_url": "https://x.example"}}, ""),
    ],
)
def test_what_a_tool_brought_is_read_wherever_an_item_holds_it(item: object, said: str) -> None:
    """A shell's two streams and a server's own tool; a picture is an output without words."""
    assert messages_from([item]) == (Message(role=Role.TOOL, content=said),)


def test_a_timestamp_is_kept_as_seconds() -> None:
    """A whole number and a fraction alike; without one the time is unknown."""
    stamps = [3, 2.5, None]
    items = [{"role": "user", "content": "x", "timestamp": stamp} for stamp in stamps]
    assert [message.timestamp for message in messages_from(items)] == [3.0, 2.5, None]


@pytest.mark.parametrize(
    ("role", "written", "kept"),
    [
        (Role.USER, "  hi\n", "hi"),
        (Role.ASSISTANT, "<think>plan</think> hi", "hi"),
        (Role.ASSISTANT, " \n<think>a\nb</think>hi <think>c</think>", "hi <think>c</think>"),
        (Role.ASSISTANT, "<think>never closed", "<think>never closed"),
        (Role.USER, "<think>mine</think> hi", "<think>mine</think> hi"),
        (Role.USER, "half \ud83d", "half \ufffd"),
        (Role.TOOL, "   ", ""),
    ],
)
def test_what_clients_drop_does_not_change_how_a_message_is_recognised(
    role: Role, written: str, kept: str
) -> None:
    """Outer blanks, a model's reasoning, half a surrogate pair."""
    message = ComparableMessage.of(role, written)
    assert (message.content, message.digest) == (kept, content_hash(kept))


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<think> plan </think> answer", "<think> plan </think>"),
        ("\n <think></think>", "<think></think>"),
        ("answer <think>late</think>", ""),
        ("<think>open", ""),
        ("", ""),
    ],
)
def test_only_reasoning_at_the_beginning_is_reasoning(text: str, thinking: str) -> None:
    """A model's own words further on are its answer."""
    assert thinking_in(text) == thinking


@given(st.text(alphabet=st.characters(), max_size=40))
def test_any_text_becomes_valid_unicode_once(text: str) -> None:
    """A second time changes nothing, and valid text is left alone."""
    valid = without_lone_surrogates(text)
    valid.encode("utf-8")
    assert without_lone_surrogates(valid) == valid
    assert len(content_hash(text)) == 32
