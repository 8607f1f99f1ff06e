"""A report as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from promptguard.validation.groups import Group
from promptguard.validation.intervals import Measure
from promptguard.validation.report import Report
from promptguard.validation.summary import Summary

GROUP_HEAD = (
    "attacks", "benign", "recall", "FPR", "precision", "F1", "AUC", "AUC within",
    "recall @1 %", "recall @5 %", "over-defence", "ECE",
)  # fmt: skip


def markdown_of(report: Report) -> str:
    """Return the whole report."""
    return "\n".join([*_head(report), *_contenders(report), *_comparison(report)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table whose first column is text and whose others are numbers."""
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "--:|" * (len(head) - 1)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def with_interval(found: Measure, digits: int = 3) -> str:
    """Return a value with its interval."""
    if found.low is None or found.high is None:
        return number(found.value, digits)
    return f"{number(found.value, digits)} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def group_cells(group: Group) -> tuple[str, ...]:
    """Return one row of a table of groups, after its name."""
    rates = (
        group.recall, group.false_positive_rate, group.precision, group.f1, group.auc,
        group.auc_within, group.recall_at_1, group.recall_at_5, group.over_defence_accuracy,
    )  # fmt: skip
    counts = (str(group.attacks), str(group.benign))
    return (*counts, *(number(rate.value) for rate in rates), number(group.calibration_error))


def headline_rows(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Return the numbers that sum a contender up, with their intervals."""
    macro, talks, accepted = summary.macro, summary.dialogues, summary.acceptance
    return (
        ("AUC, mean over attack sources", with_interval(macro.auc)),
        ("recall at 1 % FPR, likewise", with_interval(macro.recall_at_1)),
        ("recall at 5 % FPR, likewise", with_interval(macro.recall_at_5)),
        ("AUC within sources of both labels", with_interval(macro.auc_within)),
        ("recall at the configured threshold", with_interval(macro.recall)),
        ("false positives, mean over benign sources", with_interval(macro.false_positive_rate)),
        ("over-defence accuracy", with_interval(summary.overall.over_defence_accuracy)),
        ("calibration error", number(summary.overall.calibration_error)),
        ("conversations: detection rate", with_interval(talks.detection_rate)),
        ("conversations: false alarms per 1,000", with_interval(talks.false_alarms_per_1000, 1)),
        ("share of the attack spoken when seen", number(talks.share_spoken)),
        ("turns of lead before the last", number(talks.lead_turns, 2)),
        ("manipulative accuracy", with_interval(accepted.manipulative_accuracy)),
        ("extractive recall", with_interval(accepted.extractive_recall)),
        ("reciprocal false positives", with_interval(accepted.reciprocal_false_positives)),
        ("overall accuracy", with_interval(accepted.overall_accuracy)),
        ("turn latency p50 / p95 / p99", _latency(summary)),
        ("cost", f"${summary.cost_usd:.4f}"),
    )


def _latency(summary: Summary) -> str:
    found = summary.latency
    return " / ".join(number(v, 1) for v in (found.p50_ms, found.p95_ms, found.p99_ms)) + " ms"


def _head(report: Report) -> Iterator[str]:
    yield "# Validation"
    yield ""
    yield (
        f"{report.cases} cases, {report.skipped} borderline records skipped, "
        f"{report.faults} bad lines. Intervals are 95 %, bootstrapped with seed "
        f"{report.manifest.seed}."
    )
    yield ""
    for file in report.manifest.files:
        yield f"- `{file.name}` sha256 `{file.sha256[:16]}`"
    yield f"- model {report.manifest.model}"
    for bad in report.bad_lines:
        yield f"- bad line: {bad.file}, line {bad.number}: {bad.reason}"


def _contenders(report: Report) -> Iterator[str]:
    for summary in report.contenders:
        yield ""
        yield f"## {summary.name}"
        yield ""
        yield f"{summary.judged} judged, {summary.failed} failed."
        yield ""
        yield from table(("measure", "value"), headline_rows(summary))
        for title, groups in (
            ("source", summary.by_source),
            ("language", summary.by_language),
            ("category", summary.by_category),
        ):
            yield ""
            rows = [(group.name, *group_cells(group)) for group in groups]
            yield from table((title, *GROUP_HEAD), rows)
        yield from _timing(summary)


def _timing(summary: Summary) -> Iterator[str]:
    timing, order, signals = summary.dialogues.timing, summary.order, summary.signals
    if timing.known:
        yield ""
        yield (
            f"Against the first open turn ({timing.known} known): {timing.early} early, "
            f"{timing.on_turn} on it, {timing.late} late, {timing.missed} missed."
        )
    if order is not None:
        yield ""
        yield (
            f"Order: of {order.conversations} attacks with shuffled turns "
            f"{number(order.changed)} ended elsewhere, {number(order.mean_shift)} lower on average."
        )
    if signals is not None and signals.caught:
        yield ""
        rows = [
            (s.signal, str(s.alone), str(s.needed), number(s.mean_nats)) for s in signals.signals
        ]
        yield from table(("signal", "caught alone", "needed", "mean nats"), rows)
        yield ""
        yield (
            f"Of {signals.caught} attacks caught, {signals.only_together} took several signals "
            f"together and {signals.hard} the rules' veto."
        )


def _comparison(report: Report) -> Iterator[str]:
    if len(report.contenders) < 2:
        return
    found = report.attribution
    yield ""
    yield "## Comparison"
    yield ""
    rows = [
        (p.second, str(p.only_first_right), str(p.only_second_right), f"{p.p_value:.2g}")
        for p in report.pairings
    ]
    first = report.pairings[0].first
    yield from table(
        (f"{first} against", f"only {first} right", "only it right", "McNemar p"), rows
    )
    yield ""
    yield "Attacks that the row caught and the column missed:"
    yield ""
    cells = zip(found.names, found.caught, found.only_by, found.matrix, strict=True)
    yield from table(
        ("", "caught", "only it", *found.names),
        [(name, str(n), str(only), *map(str, row)) for name, n, only, row in cells],
    )
    yield ""
    yield (
        f"Of {found.attacks} attacks, {found.only_together} were caught only by a combination "
        "and by none of its parts."
    )
