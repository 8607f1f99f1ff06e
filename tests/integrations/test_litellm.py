"""The guardrail inside a real LiteLLM: its translation of requests, its keys and sessions."""

from __future__ import annotations

from typing import Any

import pytest
from chat_messages import called, user

pytest.importorskip("litellm", reason="pinned in requirements/integrations-litellm.txt")

from litellm.exceptions import GuardrailRaisedException
from litellm.llms.openai.chat.guardrail_translation.handler import OpenAIChatCompletionsHandler
from litellm.types.utils import Choices, Message, ModelResponse
from spoken import ATTACK, CLEAN, HARMLESS, POISONED, POISONED_TOOL, STEERS, THANKS

from promptguard.config import ControllerConfig
from promptguard.integrations.litellm import GuardGuardrail, session_of
from promptguard.risk.ledger import STEERING, STRIPPED


@pytest.fixture
def guardrail() -> GuardGuardrail:
    return GuardGuardrail(ControllerConfig(), guardrail_name="promptguard")


def request(*messages: dict[str, Any], key: str = "k1", session: str | None = None) -> Any:
    body: dict[str, Any] = {
        "model": "m",
        "messages": list(messages),
        "metadata": {"user_api_key_hash": key},
    }
    return body if session is None else {**body, "litellm_session_id": session}


async def sent(guardrail: GuardGuardrail, body: Any) -> Any:
    """Return the request as the proxy sends it on."""
    handler = OpenAIChatCompletionsHandler()
    return await handler.process_input_messages(data=body, guardrail_to_apply=guardrail)


async def test_a_harmless_request_passes_as_it_is(guardrail: GuardGuardrail) -> None:
    """Tool results included."""
    body = await sent(guardrail, request(user(HARMLESS), *called(CLEAN)))
    assert body["messages"][0]["content"] == HARMLESS
    assert body["messages"][2]["content"] == CLEAN


async def test_an_attack_is_a_block_with_status_400(guardrail: GuardGuardrail) -> None:
    """With the refusal as its message."""
    with pytest.raises(GuardrailRaisedException) as blocked:
        await sent(guardrail, request(user(ATTACK)))
    assert blocked.value.status_code == 400
    assert blocked.value.blocked_content
    assert blocked.value.message == "I'm sorry, but I can't assist with that."


async def test_a_poisoned_result_is_stripped_and_the_task_goes_on(
    guardrail: GuardGuardrail,
) -> None:
    """Now, and when the client sends it again."""
    said = [user(HARMLESS), *called(POISONED)]
    body = await sent(guardrail, request(*said, session="s"))
    assert body["messages"][2]["content"] == STRIPPED
    said = [user(HARMLESS), *called(POISONED), {"role": "assistant", "content": "Sunny."}]
    body = await sent(guardrail, request(*said, user(THANKS), session="s"))
    assert body["messages"][2]["content"] == STRIPPED
    assert body["messages"][-1]["content"] == THANKS


async def test_a_poisoned_tool_description_is_stripped(guardrail: GuardGuardrail) -> None:
    """The tool stays."""
    tool = {"type": "function", "function": {"name": "weather", "description": POISONED_TOOL}}
    body = await sent(guardrail, {**request(user(HARMLESS)), "tools": [tool]})
    assert body["tools"][0]["function"] == {"name": "weather", "description": STRIPPED}


async def test_two_keys_never_share_a_session(guardrail: GuardGuardrail) -> None:
    """Whatever name they give it; nor do two users of one key."""
    with pytest.raises(GuardrailRaisedException):
        await sent(guardrail, request(user(ATTACK), key="k1", session="same"))
    await sent(guardrail, request(user(HARMLESS), key="k2", session="same"))
    names = {
        session_of({**request(key=key, session="same"), "user": name})
        for key in ("k1", "k2")
        for name in ("a", "b")
    }
    assert len(names) == 4
    other = session_of(request(key="k2", session="same"))
    result = await guardrail.guard.judge("How do I bake bread?", other)
    assert result.state.profile.blocked == 0


def test_two_keys_never_share_a_session_beside_metadata_of_the_clients() -> None:
    """On Anthropic's route the proxy names the key in `litellm_metadata`; `metadata` is theirs."""

    def named(key: str, **theirs: str) -> str | None:
        ours = {"user_api_key_hash": key}
        return session_of(
            {"litellm_session_id": "same", "metadata": theirs, "litellm_metadata": ours}
        )

    seen = [named("k1", user_id="a"), named("k2", user_id="a")]
    seen.append(named("k2", user_api_key_hash="k1"))
    seen.append(session_of(request(key="k3", session="same")))
    assert len(set(seen)) == 4
    assert named("k1", user_id="a") == named("k1") == session_of(request(key="k1", session="same"))


def test_a_scrubbed_header_names_no_session() -> None:
    """The proxy writes the same word for every user."""
    assert session_of(request(session="[present]")) is None
    assert session_of(request()) is None


async def test_a_bad_answer_is_blocked(guardrail: GuardGuardrail) -> None:
    """Operational detail in a session that has shown an attack."""
    with pytest.raises(GuardrailRaisedException):
        await sent(guardrail, request(user(ATTACK), session="s"))
    steps = "Step 1: take 20 g. Step 2: heat to 90 C. Step 3: wait.\n```sh\nrun\n```"
    answer = ModelResponse(choices=[Choices(message=Message(role="assistant", content=steps))])
    with pytest.raises(GuardrailRaisedException):
        await OpenAIChatCompletionsHandler().process_output_response(
            response=answer,
            guardrail_to_apply=guardrail,
            request_data=request(user(ATTACK), session="s"),
        )


async def test_a_steered_turn_reaches_the_model_with_a_notice() -> None:
    """After the system prompt, where there is one."""
    guardrail = GuardGuardrail(STEERS, guardrail_name="promptguard")
    told = {"role": "system", "content": "You help."}
    body = await sent(guardrail, request(told, user(HARMLESS), *called(POISONED)))
    assert [m["role"] for m in body["messages"]] == [
        *("system", "user", "assistant", "tool"),
    ]
    body = await sent(guardrail, request(told, user(THANKS)))
    notice = {"role": "system", "content": STEERING}
    assert body["messages"] == [told, notice, user(THANKS)]


def test_a_subclass_is_run_by_the_proxy() -> None:
    """It runs only what stands in the class's own dictionary."""

    class Mine(GuardGuardrail):
        """A guardrail with settings of its own."""

    assert "apply_guardrail" in vars(Mine)
    assert "apply_guardrail" in vars(GuardGuardrail)
