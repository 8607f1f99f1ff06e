"""What a probe found: contradiction rates with intervals, as Markdown and as one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from promptguard.counts import counted
from promptguard.errors import InputError
from promptguard.probe.record import ProbeRecord
from promptguard.rubrics.contradiction import RubricVerdict
from promptguard.runs.intervals import cluster_bootstrap, wilson
from promptguard.runs.rendering import markdown_table, render
from promptguard.usage import Usage, cost_text

# Fixed, so that a log always gives the same interval.
_SEED = 20_240_001
_METHOD = (
    "A contradiction is a clear position reversed without acknowledging it, as the rubric finds "
    "it; an unclear answer never counts as one. Intervals cover 95 %: Wilson's per row, and for "
    "the whole a bootstrap that draws topics."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The contradictions among `n` conversations, with Wilson's 95 % interval."""

    name: str
    n: int
    contradictions: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of conversations with a contradiction."""
        return self.contradictions / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rates of one grouping, the highest first."""

    title: str
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """The whole outcome; `low` and `high` are the bootstrap's over topics."""

    total: Rate
    low: float
    high: float
    tables: tuple[Table, ...]
    verdicts: tuple[tuple[RubricVerdict, int], ...]
    usage: Usage


def report_of(records: Sequence[ProbeRecord]) -> ProbeReport:
    """Return the rates over all records; raises InputError where there are none."""
    if not records:
        raise InputError("There are no conversations to report on.")
    by_topic: dict[str, list[bool]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append(record.is_contradiction)
    # Conversations on one topic are no independent draws; topics are.
    low, high = cluster_bootstrap(tuple(by_topic.values()), seed=_SEED)
    counts = Counter(record.verdict for record in records)
    return ProbeReport(
        total=_rate("all", records),
        low=low,
        high=high,
        tables=(
            _table("Model", records, lambda record: record.model),
            _table("Topic", records, lambda record: record.topic),
            _table("Strategy", records, lambda record: record.strategy.value),
            _table("First answer", records, lambda record: record.classification.value),
        ),
        verdicts=tuple((verdict, counts[verdict]) for verdict in RubricVerdict),
        usage=sum((record.usage for record in records), Usage()),
    )


def report_as_markdown(report: ProbeReport) -> str:
    """Return the report as Markdown."""
    lines = ["# Self-contradiction probe", "", _summary(report), ""]
    for table in report.tables:
        head = (table.title.lower(), "conversations", "contradictions", "rate", "95 %")
        rows = [
            (
                r.name,
                str(r.n),
                str(r.contradictions),
                f"{r.share:.1%}",
                f"{r.low:.1%} to {r.high:.1%}",
            )
            for r in table.rates
        ]
        lines += [f"## {table.title}", "", markdown_table(rows, head), ""]
    return "\n".join([*lines, _METHOD, ""])


def report_as_json(report: ProbeReport) -> str:
    """Return the report as JSON."""
    return _REPORT.dump_json(report, indent=2).decode()


def report_as_html(report: ProbeReport) -> str:
    """Return the report as one page that needs nothing else."""
    return render("probe.html", report=report, summary=_summary(report), method=_METHOD)


def _table(title: str, records: Sequence[ProbeRecord], key: Callable[[ProbeRecord], str]) -> Table:
    groups: dict[str, list[ProbeRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    rates = [_rate(name, group) for name, group in groups.items()]
    return Table(title=title, rates=tuple(sorted(rates, key=lambda rate: (-rate.share, rate.name))))


def _rate(name: str, records: Sequence[ProbeRecord]) -> Rate:
    hits = sum(record.is_contradiction for record in records)
    low, high = wilson(hits, len(records))
    return Rate(name=name, n=len(records), contradictions=hits, low=low, high=high)


def _summary(report: ProbeReport) -> str:
    total, usage = report.total, report.usage
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts)
    return (
        f"{total.contradictions} of {counted(total.n, 'conversation')} hold a contradiction: "
        f"{total.share:.1%} (Wilson {total.low:.1%} to {total.high:.1%}, "
        f"bootstrap over topics {report.low:.1%} to {report.high:.1%}). "
        f"Verdicts: {verdicts}. {counted(usage.calls, 'call')}, "
        f"{counted(usage.input_tokens, 'token')} in, {usage.output_tokens:,} out, "
        f"{cost_text(usage)}."
    )


_REPORT: TypeAdapter[ProbeReport] = TypeAdapter(ProbeReport)
