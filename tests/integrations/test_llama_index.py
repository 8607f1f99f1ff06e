"""The postprocessor in a real LlamaIndex query engine."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core", reason="pinned in requirements/integrations.txt")

from llama_index.core import QueryBundle
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from spoken import CLEAN, HARMLESS, POISONED

from promptguard.config import ControllerConfig
from promptguard.integrations.llama_index import GuardPostprocessor


class TwoPages(BaseRetriever):
    """Finds a clean page and a poisoned one."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        texts = (CLEAN, POISONED)
        return [NodeWithScore(node=TextNode(text=text), score=1.0) for text in texts]


def engine_with(postprocessor: GuardPostprocessor) -> RetrieverQueryEngine:
    return RetrieverQueryEngine(
        retriever=TwoPages(),
        response_synthesizer=get_response_synthesizer(llm=MockLLM()),
        node_postprocessors=[postprocessor],
    )


def test_a_poisoned_passage_is_dropped_and_the_query_answered() -> None:
    """The clean passage reaches the model, the other does not."""
    response = engine_with(GuardPostprocessor()).query(HARMLESS)
    assert [node.node.get_content() for node in response.source_nodes] == [CLEAN]
    assert "evil" not in str(response)


async def test_the_async_query_decides_alike() -> None:
    """It goes through the same hook."""
    response = await engine_with(GuardPostprocessor()).aquery(HARMLESS)
    assert len(response.source_nodes) == 1


def test_detect_mode_drops_nothing() -> None:
    """It reports and never changes traffic."""
    postprocessor = GuardPostprocessor(ControllerConfig(mode="detect"))
    assert len(engine_with(postprocessor).query(HARMLESS).source_nodes) == 2
