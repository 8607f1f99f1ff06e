"""Reports: one stable JSON form, Markdown, and a page that needs nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from labelled import CALM, HOSTILE, case, cases, open_fake

from promptguard.config import ControllerConfig, Settings
from promptguard.errors import DataError
from promptguard.records import Fault
from promptguard.validation.contenders import Contender, engine
from promptguard.validation.dataset import DataFile, Dataset
from promptguard.validation.manifest import manifest_of
from promptguard.validation.markdown import markdown_of
from promptguard.validation.openers import Openers
from promptguard.validation.order import order_test, shuffled_cases
from promptguard.validation.page import page_of
from promptguard.validation.report import (
    SCHEMA,
    Report,
    report_from_json,
    report_of,
    report_to_json,
)
from promptguard.validation.runner import run_cases

OPENERS = Openers(judge=open_fake)
CONTENDERS = (
    engine("engine", Settings(conversation=ControllerConfig(preset="strict"))),
    Contender(
        name="rules <&>",
        settings=ControllerConfig(use_model=False, signals=("fil", "keywords")),
        is_part=True,
    ),
)


@pytest.fixture(scope="module")
def report() -> Report:
    missed = case(90, CALM, CALM, CALM, is_attack=True, id="missed <b>", source="odd|name")
    given = (*cases(24), missed)
    dataset = Dataset(
        cases=given,
        faults=(Fault(file="d.jsonl", number=3, reason="The line is not valid JSON."),),
        skipped=2,
        files=(DataFile(name="d.jsonl", sha256="ab" * 32),),
    )
    outcomes = run_cases(given, CONTENDERS, openers=OPENERS)
    shuffled = shuffled_cases(given, seed=1)
    again = run_cases(shuffled, CONTENDERS[:1], openers=OPENERS)
    return report_of(
        dataset,
        CONTENDERS,
        outcomes,
        manifest_of(dataset, CONTENDERS, seed=1),
        now=1.0,
        seed=1,
        rounds=20,
        orders={"engine": order_test(outcomes["engine"], again["engine"])},
    )


def test_json_comes_back_as_it_was(report: Report) -> None:
    """Nothing is lost between runs and versions."""
    assert report_from_json(report_to_json(report)) == report


def test_the_form_is_stable(report: Report) -> None:
    """Readers rely on these names."""
    import json

    body = json.loads(report_to_json(report))
    assert body["schema"] == SCHEMA == "promptguard.validation/1"
    assert list(body) == [
        "schema", "created", "cases", "skipped", "faults", "bad_lines", "manifest",
        "contenders", "pairings", "attribution",
    ]  # fmt: skip
    assert list(body["contenders"][0]) == [
        "name", "judged", "failed", "overall", "macro", "by_source", "by_language",
        "by_category", "dialogues", "acceptance", "latency", "cost_usd", "roc",
        "reliability", "worst_misses", "signals", "order",
    ]  # fmt: skip
    assert body["bad_lines"] == [
        {"file": "d.jsonl", "number": 3, "reason": "The line is not valid JSON."}
    ]


@pytest.mark.parametrize("text", ["{}", "nonsense", '{"schema": "other/1"}'])
def test_another_form_is_refused(text: str) -> None:
    """A file that is no report says so."""
    with pytest.raises(DataError):
        report_from_json(text)


def test_every_case_is_accounted_for(report: Report) -> None:
    """Judged and failed add up, and skipped and bad lines are stated."""
    for summary in report.contenders:
        assert summary.judged + summary.failed == report.cases
    text = markdown_of(report)
    assert "2 borderline records skipped" in text
    assert "d.jsonl, line 3" in text


def test_markdown_tables_are_whole(report: Report) -> None:
    """Every row has as many cells as its head, whatever the names hold."""
    rows = 0
    width = 0
    for line in markdown_of(report).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert cells == (width or cells)
        width = cells
        rows += 1
    assert rows > 30


def test_the_page_needs_nothing_else(report: Report) -> None:
    """No script, no address, nothing to fetch; names are escaped."""
    page = page_of(report)
    assert "<script" not in page
    assert "http" not in page
    assert "src=" not in page
    assert "missed <b>" not in page
    assert "rules &lt;&amp;&gt;" in page


def test_the_plots_are_well_formed_and_stay_inside(report: Report) -> None:
    """Each plot is valid XML with a name for those who cannot see it."""
    plots = re.findall(r"<svg.*?</svg>", page_of(report), flags=re.DOTALL)
    names = {ElementTree.fromstring(plot).attrib["aria-label"] for plot in plots}
    assert names == {
        "ROC curves",
        "DET curves",
        "Reliability",
        "Turn of detection",
        "Risk of the worst misses",
        "Caught by the row, missed by the column",
    }
    for plot in plots:
        for x, y in re.findall(
            r"(-?[\d.]+),(-?[\d.]+)", " ".join(re.findall(r'points="([^"]*)"', plot))
        ):
            assert -1 <= float(x) <= 400
            assert -1 <= float(y) <= 320


def test_no_text_of_a_conversation_is_in_a_report(report: Report) -> None:
    """Ids and numbers only."""
    for text in (report_to_json(report), markdown_of(report), page_of(report)):
        assert CALM[:20] not in text
        assert HOSTILE[:20] not in text
