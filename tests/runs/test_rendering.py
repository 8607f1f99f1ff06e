"""Numbers are written alike everywhere, a missing one is a dash, and tables cannot be broken."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from promptguard.runs.intervals import Measure
from promptguard.runs.rendering import (
    GROUP_HEAD,
    MISTAKE_HEAD,
    SIGNAL_HEAD,
    group_rows,
    headline_rows,
    headline_value,
    markdown_table,
    matrix_rows,
    mistake_rows,
    moment,
    number,
    render,
    signal_rows,
    with_interval,
)
from promptguard.runs.report import (
    Attribution,
    Group,
    Headline,
    Mistake,
    Report,
    SignalAttribution,
    SignalShare,
    Summary,
)


def summary(**fields: Any) -> Summary:
    return Summary(**({"name": "engine", "judged": 0, "failed": 0, "headline": ()} | fields))


def test_what_could_not_be_measured_is_left_out_of_the_headline() -> None:
    """Single messages have no conversations to count: a dash would look like a fault."""
    known, unknown = (
        Headline(key=key, label=key, measure=Measure(value=value))
        for key, value in (("auc", 0.9), ("dialogues", None))
    )
    assert headline_rows(summary(headline=(known, unknown))) == (("auc", "0.900"),)


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (None, 3, "-"),
        (0.0, 3, "0.000"),
        (-0.0004, 3, "-0.000"),
        (0.9995, 3, "1.000"),
        (12.345, 1, "12.3"),
        (2.5, 0, "2"),
        (float("nan"), 2, "nan"),
    ],
)
def test_a_number_has_its_digits(value: float | None, digits: int, written: str) -> None:
    """Nothing measured is never a zero."""
    assert number(value, digits) == written


@pytest.mark.parametrize(
    ("found", "written"),
    [
        (Measure(), "-"),
        (Measure(value=0.5), "0.50"),
        (Measure(value=0.5, low=0.4), "0.50"),
        (Measure(value=0.5, high=0.6), "0.50"),
        (Measure(value=0.5, low=0.4, high=0.6), "0.50 (0.40 to 0.60)"),
        (Measure(value=0.0, low=0.0, high=0.0), "0.00 (0.00 to 0.00)"),
    ],
)
def test_an_interval_is_written_where_it_is_whole(found: Measure, written: str) -> None:
    """Half of one says nothing; bounds of 0 are bounds."""
    assert with_interval(found, 2) == written


def test_a_headline_has_its_unit() -> None:
    """Without one there is no blank at its end."""
    plain = Headline(key="auc", label="AUC", measure=Measure(value=0.9))
    timed = Headline(key="p50", label="p50", measure=Measure(value=7.0), digits=1, unit="ms")
    assert (headline_value(plain), headline_value(timed)) == ("0.900", "7.0 ms")


def test_a_table_is_not_broken_by_what_is_in_it() -> None:
    """Bars are escaped and line breaks become blanks; every row has the columns of the head."""
    table = markdown_table([("a|b", "1"), ("two\nlines  here", "2")], ("na|me", "n"))
    assert table.splitlines() == [
        r"| na\|me | n |",
        "|---|--:|",
        r"| a\|b | 1 |",
        "| two lines here | 2 |",
    ]
    assert markdown_table([], ("name",)).splitlines() == ["| name |", "|---|"]


def test_an_empty_group_is_a_row_of_dashes() -> None:
    """As wide as its head, with the name before it."""
    (row,) = group_rows([Group(name="fr", attacks=0, benign=3)])
    assert row == ("fr", "0", "3", *["-"] * (len(GROUP_HEAD) - 2))


@pytest.mark.parametrize(
    ("fields", "decided"),
    [
        ({}, "no evidence"),
        ({"is_hard": True, "signals": (("fil", 2.0),)}, "hard rule"),
        ({"signals": (("semantic", 1.234), ("fil", -0.5))}, "semantic +1.23, fil -0.50"),
    ],
)
def test_a_mistake_says_what_decided(fields: dict[str, Any], decided: str) -> None:
    """A hard rule before all evidence; otherwise the nats with their sign."""
    listed = Mistake(id=7, source="s", category="c", score=0.25, risks=(0.1, 0.25), **fields)
    (row,) = mistake_rows([listed])
    assert dict(zip(MISTAKE_HEAD, row, strict=True)) == {
        "record": "7",
        "source": "s",
        "category": "c",
        "language": "",
        "risk": "0.250",
        "turns": "2",
        "decided by": decided,
    }


def test_signals_are_shown_where_some_attack_was_caught() -> None:
    """Not measured and nothing caught are both no table."""
    share = SignalShare(signal="fil", alone=1, needed=2, mean_nats=0.5)
    none = SignalAttribution(caught=0, hard=0, only_together=0, signals=(share,))
    some = SignalAttribution(caught=3, hard=0, only_together=0, signals=(share,))
    assert signal_rows(summary()) == signal_rows(summary(signals=none)) == ()
    (row,) = signal_rows(summary(signals=some))
    assert dict(zip(SIGNAL_HEAD, row, strict=True))["needed"] == "2"


def test_the_rows_of_the_matrix_need_a_count_for_every_name() -> None:
    """A report whose lists differ in length is not shown in part."""
    whole = Attribution(names=("a", "b"), caught=(3, 1), only_by=(2, 0), matrix=((0, 2), (0, 0)))
    report = Report(created=0.0, cases=4, contenders=(summary(),), attribution=whole)
    assert matrix_rows(report) == (("a", "3", "2", "0", "2"), ("b", "1", "0", "0", "0"))
    short = Attribution(names=("a", "b"), caught=(3,), only_by=(2, 0), matrix=((0, 2), (0, 0)))
    with pytest.raises(ValueError, match="zip"):
        matrix_rows(Report(created=0.0, cases=4, contenders=(summary(),), attribution=short))


def test_a_moment_is_in_utc() -> None:
    """Whatever the machine's own zone is."""
    assert moment(0.0) == "1970-01-01 00:00 UTC"
    assert moment(1_700_000_000.9) == "2023-11-14 22:13 UTC"


def test_a_template_without_its_values_is_an_error() -> None:
    """A gap in a report would pass for a zero."""
    with pytest.raises(UndefinedError):
        render("validation.md")
    with pytest.raises(TemplateNotFound):
        render("nowhere.md")
