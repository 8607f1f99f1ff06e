"""Reports: one stable JSON form, Markdown, and a page that needs nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from labelled import CALM, HOSTILE, case, cases, open_fake, outcome

from promptguard.config import ControllerConfig, Settings
from promptguard.errors import DataError
from promptguard.records import Fault
from promptguard.runs.rendering import headline_rows, report_as_html, report_as_markdown
from promptguard.runs.report import (
    SCHEMA,
    DataFile,
    Report,
    read_report,
    report_from_json,
    report_to_json,
)
from promptguard.validation.contenders import Contender, Openers, engine
from promptguard.validation.dataset import Dataset
from promptguard.validation.dialogues import order_test, shuffled_cases
from promptguard.validation.report import report_of, summary_of
from promptguard.validation.runner import manifest_of, run_cases

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
        command="promptguard validate <d.jsonl>",
    )


def test_json_comes_back_as_it_was(report: Report) -> None:
    """Nothing is lost between runs and versions."""
    assert report_from_json(report_to_json(report)) == report


def test_the_form_is_stable(report: Report) -> None:
    """Readers rely on these names."""
    import json

    body = json.loads(report_to_json(report))
    assert body["schema"] == SCHEMA == "promptguard.validation/2"
    assert list(body) == [
        "schema", "created", "command", "cases", "skipped", "faults", "bad_lines", "warnings",
        "manifest", "contenders", "pairings", "attribution",
    ]  # fmt: skip
    assert list(body["contenders"][0]) == [
        "name", "judged", "failed", "headline", "overall", "macro", "by_source", "by_language",
        "by_category", "dialogues", "acceptance", "latency", "cost_usd", "roc",
        "reliability", "missed", "false_alarms", "signals", "order",
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
    text = report_as_markdown(report)
    assert "2 borderline records skipped" in text
    assert "d.jsonl, line 3" in text


def test_markdown_tables_are_whole(report: Report) -> None:
    """Every row has as many cells as its head, whatever the names hold."""
    rows = 0
    width = 0
    for line in report_as_markdown(report).splitlines():
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
    page = report_as_html(report)
    assert "<script" not in page
    assert "http" not in page
    assert "src=" not in page
    assert "missed <b>" not in page
    assert "rules &lt;&amp;&gt;" in page


def test_the_plots_are_well_formed_and_stay_inside(report: Report) -> None:
    """Each plot is valid XML with a name for those who cannot see it."""
    plots = re.findall(r"<svg.*?</svg>", report_as_html(report), flags=re.DOTALL)
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
    for text in (report_to_json(report), report_as_markdown(report), report_as_html(report)):
        assert CALM[:20] not in text
        assert HOSTILE[:20] not in text


def test_every_reader_shows_the_same_numbers(report: Report) -> None:
    """Markdown and page show the headline as the JSON holds it, label and value."""
    markdown, page = report_as_markdown(report), report_as_html(report)
    for summary in report.contenders:
        for label, value in headline_rows(summary):
            assert f"| {label} | {value} |" in markdown
            assert f"<td>{label}</td><td>{value}</td>" in page
    labels = [each.label for each in report.contenders[0].headline]
    assert len(set(labels)) == len(labels)
    recall = next(each for each in report.contenders[0].headline if each.key == "recall")
    assert "mean over sources" in recall.label
    assert recall.measure.value == report.contenders[0].macro.recall.value


def test_mistakes_are_listed_with_what_decided(report: Report) -> None:
    """Missed attacks and flagged benign records, by id, worst first."""
    engine_summary = report.contenders[0]
    assert "missed <b>" in [each.id for each in engine_summary.missed.listed]
    scores = [each.score for each in engine_summary.missed.listed]
    assert scores == sorted(scores)
    assert "### Missed attacks" in report_as_markdown(report)
    assert "missed &lt;b&gt;" in report_as_html(report)


def test_flagged_benign_records_are_counted_whole_and_listed_in_part() -> None:
    """Thousands of them do not make a page nobody opens."""
    judged = tuple(case(n) for n in range(150))
    outcomes = [outcome(n, 0.9, nats=(("fil", 2.0), ("semantic", -3.0))) for n in range(150)]
    found = summary_of(CONTENDERS[0], judged, outcomes, seed=0, rounds=2).false_alarms
    assert found.count == 150
    assert len(found.listed) == 100
    assert found.listed[0].signals == (("semantic", -3.0), ("fil", 2.0))


def test_a_report_says_how_and_when_it_was_made(report: Report) -> None:
    """The command and the date are in every form."""
    assert "promptguard validate &lt;d.jsonl&gt;" in report_as_html(report)
    for text in (report_as_markdown(report), report_as_html(report)):
        assert "1970-01-01 00:00 UTC" in text
        assert "A record is flagged where" in text


def test_a_small_sample_is_warned_about_and_gets_no_intervals(report: Report) -> None:
    """Thirteen attacks do not make an interval."""
    assert any("Only 13 attacks and 12 benign" in warning for warning in report.warnings)
    assert all(each.measure.low is None for each in report.contenders[0].headline)
    judged = tuple(case(n, is_attack=bool(n % 2)) for n in range(40))
    outcomes = [outcome(n, n * 7 % 40 / 40) for n in range(40)]
    large = summary_of(CONTENDERS[0], judged, outcomes, seed=0, rounds=20)
    assert large.headline[0].measure.low is not None


def test_a_report_is_read_from_a_file(report: Report, tmp_path: Path) -> None:
    """None where there is no file, DataError where it is no report."""
    path = tmp_path / "report.json"
    assert read_report(path) is None
    path.write_text(report_to_json(report), encoding="utf-8")
    assert read_report(path) == report
    path.write_text('{"schema": "promptguard.validation/1"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"report\.json is not a report"):
        read_report(path)
