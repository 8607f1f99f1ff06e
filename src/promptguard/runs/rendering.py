"""Reports as text: Jinja2 templates, HTML escaped by default, and how numbers are written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from promptguard.counts import counted
from promptguard.runs import plots
from promptguard.runs.intervals import Measure
from promptguard.runs.report import Group, Headline, Mistake, Report, Summary

GROUP_HEAD = (
    "attacks", "benign", "recall", "FPR", "precision", "F1", "AUC", "AUC within",
    "recall @1 %", "recall @5 %", "over-defence", "ECE",
)  # fmt: skip
MISTAKE_HEAD = ("record", "source", "category", "language", "risk", "turns", "decided by")
SIGNAL_HEAD = ("signal", "caught alone", "needed", "mean nats")
MOST_CURVES = 8

Rows = tuple[tuple[str, ...], ...]


def render(template: str, **values: object) -> str:
    """Fill a template of `data/templates`; `.html` templates escape what they are given."""
    return _environment().get_template(template).render(**values)


def report_as_markdown(report: Report) -> str:
    """Return a validation report as Markdown."""
    return render("validation.md", report=report)


def report_as_html(report: Report) -> str:
    """Return a validation report as one page that needs nothing else: no script, no address."""
    return render("validation.html", report=report, plots=plots)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def with_interval(found: Measure, digits: int = 3) -> str:
    """Return a value with its interval."""
    if found.low is None or found.high is None:
        return number(found.value, digits)
    return f"{number(found.value, digits)} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def headline_rows(summary: Summary) -> Rows:
    """Return label and value of the numbers that sum a contender up, where there is a value.

    Single messages have no conversations to count, and documents no look-alikes.
    """
    known = (each for each in summary.headline if each.measure.value is not None)
    return tuple((each.label, headline_value(each)) for each in known)


def headline_value(each: Headline) -> str:
    """Return the value of one headline with its interval and unit."""
    return f"{with_interval(each.measure, each.digits)}{each.unit and ' ' + each.unit}"


def group_rows(groups: Sequence[Group]) -> Rows:
    """Return the rows of a table of groups, under `GROUP_HEAD` after the name."""
    return tuple((group.name, *_group_cells(group)) for group in groups)


def mistake_rows(listed: Sequence[Mistake]) -> Rows:
    """Return the rows of a table of mistakes, under `MISTAKE_HEAD`."""
    return tuple(
        (str(each.id), each.source, each.category, each.lang, number(each.score),
         str(len(each.risks)), _decided_by(each))
        for each in listed
    )  # fmt: skip


def signal_rows(summary: Summary) -> Rows:
    """Return the rows of the table of signals, under `SIGNAL_HEAD`."""
    if summary.signals is None or not summary.signals.caught:
        return ()
    return tuple(
        (s.signal, str(s.alone), str(s.needed), number(s.mean_nats))
        for s in summary.signals.signals
    )


def matrix_rows(report: Report) -> Rows:
    """Return the rows of the attribution matrix: name, caught, only by it, and the counts."""
    found = report.attribution
    cells = zip(found.names, found.caught, found.only_by, found.matrix, strict=True)
    return tuple((name, str(n), str(only), *map(str, row)) for name, n, only, row in cells)


def moment(timestamp: float) -> str:
    """Return a point in time in UTC."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")


def markdown_table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    first, *others = (f"| {' | '.join(map(_cell, row))} |" for row in (head, *rows))
    return "\n".join((first, "|---|" + "--:|" * (len(head) - 1), *others))


def _cell(text: str) -> str:
    # A bar or a line end would break the table.
    return " ".join(text.replace("|", "\\|").split())


def _group_cells(group: Group) -> tuple[str, ...]:
    rates = (
        group.recall, group.false_positive_rate, group.precision, group.f1, group.auc,
        group.auc_within, group.recall_at_1, group.recall_at_5, group.over_defence_accuracy,
    )  # fmt: skip
    counts = (str(group.attacks), str(group.benign))
    return (*counts, *(number(rate.value) for rate in rates), number(group.calibration_error))


def _decided_by(each: Mistake) -> str:
    if each.is_hard:
        return "hard rule"
    return ", ".join(f"{name} {nats:+.2f}" for name, nats in each.signals) or "no evidence"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("promptguard", "data/templates"),
        autoescape=select_autoescape(["html"]),
        # A misspelt name in a template is an error and not an empty cell.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = (
        counted, headline_rows, group_rows, markdown_table, matrix_rows, mistake_rows, moment,
        number, signal_rows,
    )  # fmt: skip
    environment.filters |= {each.__name__: each for each in filters}
    environment.globals |= {
        "GROUP_HEAD": GROUP_HEAD,
        "MISTAKE_HEAD": MISTAKE_HEAD,
        "MOST_CURVES": MOST_CURVES,
        "SIGNAL_HEAD": SIGNAL_HEAD,
    }
    return environment
