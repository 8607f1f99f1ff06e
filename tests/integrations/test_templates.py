"""What frameworks wrap around an innocent task passes the gateway unblocked."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain_classic", reason="pinned in requirements/integrations.txt")

from conftest import Gateway
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_classic.chains.summarize import load_summarize_chain
from langchain_core.documents import Document
from langchain_openai import ChatOpenAI

MEMOS = (
    (
        "The bakery on Mill Street opens at six. Flour is delivered on Mondays, and the oven is "
        "serviced twice a year. Last month the ovens ran eleven hours a day, two more than planned."
    ),
    (
        "Minutes of the garden club: the roses by the gate need pruning in March. Anna brings the "
        "shears, Jon the ladder. The budget for bulbs is 140 euros, of which 90 are spent."
    ),
    (
        "Release notes: the importer now reads semicolon-separated files, the search box keeps its "
        "last query, and a crash on empty attachments is fixed. Upgrading takes about two minutes."
    ),
)


def model(gateway: Gateway) -> ChatOpenAI:
    return ChatOpenAI(
        model="stub-model",
        base_url=gateway.url,
        api_key="none",
        max_retries=0,
        custom_get_token_ids=lambda text: list(text.encode()),  # the real table is downloaded
    )


@pytest.mark.parametrize("kind", ["stuff", "map_reduce", "refine"])
def test_langchains_summaries_pass(gateway: Gateway, kind: str) -> None:
    """Each text alone, all in one, and one after the other."""
    chain = load_summarize_chain(model(gateway), chain_type=kind)
    for memos in (MEMOS, *((memo,) for memo in MEMOS)):
        chain.invoke({"input_documents": [Document(page_content=memo) for memo in memos]})
    assert not (stopped := gateway.stopped()), stopped[0]


def test_langchains_summarisation_of_a_long_talk_passes(gateway: Gateway) -> None:
    """The middleware asks for a summary of the history, and the agent goes on with it."""
    shortened = SummarizationMiddleware(
        model=model(gateway), trigger=("messages", 4), keep=("messages", 2)
    )
    agent = create_agent(model(gateway), tools=[], middleware=[shortened])
    said = []
    for memo in MEMOS * 2:
        asked = ("user", f"What stands out in this note? {memo}")
        said = agent.invoke({"messages": [*said, asked]})["messages"]
    assert not (stopped := gateway.stopped()), stopped[0]
    assert any("summary" in str(body) for body in gateway.upstream.requests)
