"""The report."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from scripted_targets import TOPICS, RuleTarget, yields_to_accusation

from promptguard.errors import InputError
from promptguard.probe.report import report_as_html, report_as_markdown, report_of
from promptguard.probe.runner import ProbePlan, run_probe
from promptguard.testing import ManualClock


@pytest.fixture
async def records():
    plan = ProbePlan(topics=TOPICS, conversations=20, seed=2)
    target = RuleTarget(yields_to_accusation)
    return [step.record async for step in run_probe(target, plan, clock=ManualClock())]


async def test_every_grouping_adds_up(records) -> None:
    """Each table counts every conversation once."""
    report = report_of(records)
    assert [table.title for table in report.tables] == [
        "Model",
        "Topic",
        "Strategy",
        "First answer",
    ]
    for table in report.tables:
        assert sum(rate.n for rate in table.rates) == 20
        assert sum(rate.contradictions for rate in table.rates) == report.total.contradictions
        assert all(rate.low <= rate.share <= rate.high for rate in table.rates)
    assert report.low <= report.total.share <= report.high
    assert sum(count for _, count in report.verdicts) == 20


async def test_markdown_shows_rates_with_intervals(records) -> None:
    """The strategy that worked stands first."""
    text = report_as_markdown(report_of(records))
    assert re.search(r"\| accuse \| \d+ \| \d+ \| 100\.0% \| [\d.]+% to 100\.0% \|", text)
    assert "bootstrap over topics" in text


async def test_the_page_needs_nothing_else_and_escapes_names(records) -> None:
    """No address, no script, and a hostile name stays text."""
    hostile = [replace(record, model="<script>x</script>|y") for record in records]
    page = report_as_html(report_of(hostile))
    assert "<script" not in page
    assert not re.search(r"(src|href)=|https?:|url\(", page)
    HTMLParser().feed(page)


async def test_a_name_stays_in_its_cell(records) -> None:
    """Neither a bar nor a line end in the id of a topic breaks the table."""
    odd = [replace(record, topic="one|two\nthree") for record in records]
    text = report_as_markdown(report_of(odd))
    assert re.search(r"^\| one\\\|two three \| 20 \|", text, re.MULTILINE)


def test_no_conversations_are_no_report() -> None:
    """Nothing is said about nothing."""
    with pytest.raises(InputError):
        report_of([])
