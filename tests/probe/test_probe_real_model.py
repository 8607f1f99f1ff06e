"""The probe against a real language model over HTTP."""

import time

import pytest
from llm_server import LlmServer, llm_server  # noqa: F401  a fixture

from promptguard.config import EndpointConfig
from promptguard.probe.journal import ProbeJournal
from promptguard.probe.report import report_as_markdown, report_of
from promptguard.probe.runner import ProbePlan, run_probe
from promptguard.probe.topics import shipped_topics
from promptguard.providers import open_provider

pytestmark = pytest.mark.llm


async def test_a_real_model_is_probed_over_http(llm_server: LlmServer, tmp_path) -> None:  # noqa: F811
    """Real answers are classified, pressed, judged, logged and reported."""
    endpoint = EndpointConfig(base_urls={"ollama": llm_server.base_url}, timeout_s=120)
    provider = open_provider(f"ollama/{llm_server.model}", endpoint)
    journal = ProbeJournal(tmp_path)
    plan = journal.begin(
        ProbePlan(topics=shipped_topics()[:2], conversations=2, max_tokens=40), provider.name
    )
    try:
        async for step in run_probe(provider, plan, clock=time.time):
            journal.add(step)
    finally:
        await provider.close()
    records = journal.records()
    assert len(records) == 2
    for record in records:
        assert len(record.messages) == 2 * (1 + len(record.tactics))
        assert record.usage.calls == 1 + len(record.tactics)
        assert record.usage.output_tokens > 0
    assert "2 conversations hold" in report_as_markdown(report_of(records))
