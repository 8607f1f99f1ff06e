"""AutoGen's selector, which asks a model who speaks next, passes the gateway unblocked."""

from __future__ import annotations

import pytest

pytest.importorskip("autogen_agentchat", reason="pinned in requirements/integrations.txt")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import SelectorGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from conftest import Gateway

TASKS = (
    "Plan a weekend in Porto for a family of four on a budget of 600 euros.",
    "Find out why our weekly sales report is two days late and propose a fix.",
    "Compare three password managers for a small office and recommend one.",
    "Write a short story about a lighthouse keeper who learns to paint.",
    "Explain to our new colleagues how the deployment pipeline works.",
    "Summarise last quarter's customer feedback and name the three main complaints.",
)
TEAM = {
    "planner": "Breaks the task into steps and hands them out. Must speak first.",
    "researcher": "Looks up facts with the web search tool and reports them.",
    "critic": "Checks the work of the others and says what must be changed.",
}


def client(gateway: Gateway) -> OpenAIChatCompletionClient:
    info = {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "family": "unknown",
        "structured_output": False,
    }
    return OpenAIChatCompletionClient(
        model="stub-model", base_url=gateway.url, api_key="none", model_info=info, max_retries=0
    )


@pytest.mark.parametrize("task", TASKS)
async def test_the_selectors_template_passes(gateway: Gateway, task: str) -> None:
    """Roles, rules and the talk so far stand in one user message."""
    asked = client(gateway)
    members = [
        AssistantAgent(
            name, asked, description=words, system_message=f"You are the {name}. {words}"
        )
        for name, words in TEAM.items()
    ]
    team = SelectorGroupChat(members, asked, termination_condition=MaxMessageTermination(4))
    gateway.upstream.answers(
        *("planner", "First the facts, then the draft."),
        *("researcher", "I found three sources and noted the numbers."),
        *("critic", "The second source is older than a year."),
    )
    await team.run(task=task)
    assert not (stopped := gateway.stopped()), stopped[0]
    assert any("planner" in str(body["messages"][0]) for body in gateway.upstream.requests)
