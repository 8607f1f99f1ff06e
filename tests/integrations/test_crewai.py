"""CrewAI's templates for agents, tools, planning and managers pass the gateway unblocked."""

from __future__ import annotations

import pytest

pytest.importorskip("crewai", reason="pinned in requirements/integrations-crewai.txt")

from conftest import Gateway
from crewai import LLM, Agent, Crew, Process, Task
from crewai.tools import tool

ANSWER = "Thought: I now can give a great answer\nFinal Answer: Here is the finished text."
JOBS = (
    ("Travel writer", "Write a guide to Porto in three paragraphs", "A guide in Markdown"),
    ("Data analyst", "Find why the weekly sales report is late", "A list of causes"),
    ("Support lead", "Draft a reply to a customer whose parcel is lost", "A polite mail"),
    ("Chemistry teacher", "Explain why bread dough rises", "A page for pupils of twelve"),
    ("Security engineer", "Review the password policy of a small office", "Five recommendations"),
    ("Recruiter", "Write a job advertisement for a bakery apprentice", "An advertisement"),
)


@tool("search")
def search(query: str) -> str:
    """Search the web for a query and return the first results."""
    return f"Three results about {query}."


def worker(gateway: Gateway, role: str, goal: str, **more: object) -> Agent:
    model = LLM(model="openai/stub-model", base_url=gateway.url, api_key="none")
    story = f"You have worked as a {role.lower()} for ten years and are known for clear words."
    return Agent(role=role, goal=goal, backstory=story, llm=model, verbose=False, **more)


@pytest.mark.parametrize(("role", "job", "expected"), JOBS)
@pytest.mark.parametrize("tools", [[], [search]], ids=["alone", "with-a-tool"])
def test_a_task_passes(gateway: Gateway, role: str, job: str, expected: str, tools: list) -> None:
    """The template stands in the user's message."""
    agent = worker(gateway, role, job, tools=tools)
    crew = Crew(
        agents=[agent], tasks=[Task(description=job, expected_output=expected, agent=agent)]
    )
    gateway.upstream.answers(ANSWER)
    crew.kickoff()
    assert not (stopped := gateway.stopped()), stopped[0]


def test_a_managed_crew_passes(gateway: Gateway) -> None:
    """The manager's own template, and the context of earlier tasks."""
    crew_of = [worker(gateway, role, job) for role, job, _ in JOBS[:2]]
    tasks = [Task(description=job, expected_output=what) for _, job, what in JOBS[:2]]
    manager = LLM(model="openai/stub-model", base_url=gateway.url, api_key="none")
    crew = Crew(agents=crew_of, tasks=tasks, process=Process.hierarchical, manager_llm=manager)
    gateway.upstream.answers(ANSWER, ANSWER, ANSWER, ANSWER)
    crew.kickoff()
    assert not (stopped := gateway.stopped()), stopped[0]
