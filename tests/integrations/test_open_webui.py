"""The filter as Open WebUI calls it: `inlet` and `outlet` with body, user and metadata."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from spoken import ATTACK, HARMLESS, POISONED, THANKS

from promptguard.integrations import open_webui
from promptguard.integrations.open_webui import Filter
from promptguard.risk.policy import STEERING, STRIPPED


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
    namespace: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(source, "pasted", "exec"), namespace)
    assert "from promptguard import" in source
    assert "from promptguard." not in source
    assert namespace["Filter"]().valves.preset == "balanced"
