"""The filter as Open WebUI calls it: `inlet`, `request` and `outlet` with body and metadata."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from spoken import ATTACK, CLEAN, HARMLESS, POISONED, THANKS

from promptguard.integrations import open_webui
from promptguard.integrations.open_webui import Filter
from promptguard.risk.ledger import STEERING, STRIPPED


def body(*messages: tuple[str, str]) -> dict[str, Any]:
    said = [{"role": role, "content": content} for role, content in messages]
    return {"model": "m", "messages": said}


def who(user: str, chat: str = "c1") -> dict[str, Any]:
    return {"__user__": {"id": user}, "__metadata__": {"chat_id": chat}}


async def test_a_harmless_chat_passes_as_it_is() -> None:
    """In both directions."""
    guard = Filter()
    asked = body(("user", HARMLESS))
    assert await guard.inlet(asked, **who("u")) == asked
    answered = body(("user", HARMLESS), ("assistant", "Sunny."))
    assert await guard.outlet(answered, **who("u")) == answered


async def test_an_attack_is_an_error_with_the_refusal() -> None:
    """Open WebUI shows it in place of an answer."""
    with pytest.raises(ValueError, match="can't assist"):
        await Filter().inlet(body(("user", ATTACK)), **who("u"))


async def test_a_poisoned_result_is_stripped_and_the_task_goes_on() -> None:
    """Now, and when the chat is sent again."""
    guard = Filter()
    said = [("user", HARMLESS), ("assistant", ""), ("tool", POISONED)]
    cleaned = await guard.inlet(body(*said), **who("u"))
    assert cleaned["messages"][2]["content"] == STRIPPED
    said += [("assistant", "Sunny."), ("user", THANKS)]
    cleaned = await guard.inlet(body(*said), **who("u"))
    assert cleaned["messages"][2]["content"] == STRIPPED
    assert cleaned["messages"][-1]["content"] == THANKS


async def test_a_result_that_came_after_the_question_is_stripped() -> None:
    """Of one part or of several; an earlier one was judged with its chat."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": POISONED}, {"type": "image_url"}]
    asked = body(("tool", POISONED), ("user", HARMLESS), ("assistant", ""), ("tool", POISONED))
    asked["messages"].append({"role": "tool", "content": parts})
    cleaned = (await Filter().request(asked))["messages"]
    assert [m["content"] for m in cleaned[:4]] == [POISONED, HARMLESS, "", STRIPPED]
    assert cleaned[4]["content"] == [{"type": "text", "text": STRIPPED}, {"type": "image_url"}]
    assert asked["messages"][3]["content"] == POISONED


@pytest.mark.parametrize("role", ["user", "system"])
async def test_a_poisoned_document_is_replaced_in_its_tag(role: str) -> None:
    """Also one that pretends to end early; what stands around the tags is the question's own."""
    escaped = f"Sunny.</source>\n{POISONED}"
    text = "Cite <source id>.\n" + "".join(
        f'<source id="{number}" name="n">{content}</source>\n'
        for number, content in enumerate((CLEAN, escaped))
    )
    said = [(role, f"{text}\n{HARMLESS}"), ("assistant", ""), ("tool", CLEAN)]
    cleaned = (await Filter().request(body(*said)))["messages"][0]["content"]
    assert cleaned == (
        f'Cite <source id>.\n<source id="0" name="n">{CLEAN}</source>\n'
        f'<source id="1" name="n">{STRIPPED}</source>\n\n{HARMLESS}'
    )


async def test_tags_that_are_never_closed_take_no_time_by_their_number() -> None:
    """A message of the largest size would else hold up every chat of the program for a minute."""
    asked = body(("user", "<source id=\n" * 80_000), ("assistant", ""), ("tool", CLEAN))
    async with asyncio.timeout(5):
        assert (await Filter().request(asked))["messages"] == asked["messages"]
        # What holds up the event loop is noticed when it waits again.
        await asyncio.sleep(0)


@pytest.mark.parametrize("messages", [[], [("system", "You help.")], [("assistant", "Hello.")]])
async def test_a_request_without_a_question_passes(messages: list[tuple[str, str]]) -> None:
    """There is nothing to judge."""
    asked = body(*messages)
    assert await Filter().request(asked) == asked


async def test_a_blocked_question_in_the_chat_is_left_out() -> None:
    """Open WebUI stores it without an answer and sends it with the next question."""
    guard = Filter()
    with pytest.raises(ValueError, match="can't assist"):
        await guard.inlet(body(("user", ATTACK)), **who("u"))
    asked = body(("user", ATTACK), ("user", HARMLESS))
    assert (await guard.inlet(asked, **who("u")))["messages"] == body(
        ("system", STEERING), ("user", HARMLESS)
    )["messages"]
    with pytest.raises(ValueError, match="can't assist"):
        await guard.inlet(asked, {"id": "u"}, {"chat_id": ""})


async def test_two_users_do_not_share_a_session() -> None:
    """Even where their chats have one id."""
    guard = Filter()
    with pytest.raises(ValueError, match="can't assist"):
        await guard.inlet(body(("user", ATTACK)), **who("one"))
    await guard.inlet(body(("user", HARMLESS)), **who("two"))
    opened = guard._opened()
    assert (await opened.judge("How do I bake bread?", "two:c1")).state.profile.blocked == 0
    assert (await opened.judge("How do I bake bread?", "one:c1")).state.profile.blocked == 1


async def test_after_an_attack_the_model_is_told_to_take_care() -> None:
    """The harmless turn passes, with a notice after the system prompt."""
    guard = Filter()
    with pytest.raises(ValueError, match="can't assist"):
        await guard.inlet(body(("user", ATTACK)), **who("u"))
    steered = await guard.inlet(body(("system", "You help."), ("user", HARMLESS)), **who("u"))
    notice = ("system", STEERING)
    assert steered == body(("system", "You help."), notice, ("user", HARMLESS))


async def test_a_bad_answer_is_replaced() -> None:
    """Operational detail in a chat that has shown an attack."""
    guard = Filter()
    with pytest.raises(ValueError, match="can't assist"):
        await guard.inlet(body(("user", ATTACK)), **who("u"))
    steps = "Step 1: take 20 g. Step 2: heat to 90 C. Step 3: wait.\n```sh\nrun\n```"
    answered = await guard.outlet(body(("user", ATTACK), ("assistant", steps)), **who("u"))
    assert "can't assist" in answered["messages"][-1]["content"]
    last = {"role": "assistant", "content": steps, "output": [{"type": "message"}]}
    answered = await guard.outlet({"messages": [last]}, **who("u"))
    assert "can't assist" in answered["messages"][-1]["output"][0]["content"][0]["text"]


async def test_valves_are_followed() -> None:
    """Detect only changes nothing; a changed valve opens the guard anew."""
    guard = Filter()
    guard.valves = Filter.Valves(detect_only=True)
    attack = body(("user", ATTACK))
    assert await guard.inlet(attack, **who("u")) == attack
    guard.valves = Filter.Valves()
    with pytest.raises(ValueError, match="can't assist"):
        await guard.inlet(attack, **who("u"))


def test_the_file_can_be_pasted() -> None:
    """It imports nothing but the public names and pydantic."""
    source = inspect.getsource(open_webui)
    assert source.startswith('"""\n'), "else the program does not read the header"
    namespace: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(source, "pasted", "exec"), namespace)
    assert "from promptguard import" in source
    assert "from promptguard." not in source
    assert namespace["Filter"]().valves.preset == "balanced"
