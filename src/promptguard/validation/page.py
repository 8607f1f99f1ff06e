"""A report as one HTML page that needs nothing else: no script, no font, no address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from promptguard.validation.groups import Group
from promptguard.validation.markdown import GROUP_HEAD, group_cells, headline_rows, number
from promptguard.validation.plots import (
    attribution_plot,
    det_plot,
    histogram,
    reliability_plot,
    roc_plot,
    trajectories,
)
from promptguard.validation.report import Report
from promptguard.validation.summary import Summary

_STYLE = """
:root{color-scheme:light dark;--ink:#1f2937;--paper:#fff;--line:#d1d5db}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--paper:#111827;--line:#4b5563}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
margin:2rem auto;max-width:75rem;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-size:13px}
th,td{border-bottom:1px solid var(--line);padding:.2rem .6rem;text-align:right}
th:first-child,td:first-child{text-align:left}
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}
svg .f{fill:none;stroke:var(--line)}svg .d{stroke:var(--line);stroke-dasharray:4 3}
.plots{display:flex;flex-wrap:wrap;gap:1rem}.scroll{overflow-x:auto}
"""


def page_of(report: Report) -> str:
    """Return the whole page."""
    body = "\n".join([*_head(report), *_comparison(report), *_contenders(report)])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Validation</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _head(report: Report) -> Iterator[str]:
    yield "<h1>Validation</h1>"
    yield (
        f"<p>{report.cases} cases, {report.skipped} borderline records skipped, "
        f"{report.faults} bad lines. Intervals are 95&nbsp;%, bootstrapped with "
        f"seed {report.manifest.seed}.</p>"
    )
    files = [(file.name, file.sha256[:16]) for file in report.manifest.files]
    yield _table(("data", "sha256"), [*files, ("model", report.manifest.model)])
    if report.bad_lines:
        yield _table(
            ("bad line", "number", "reason"),
            [(bad.file, str(bad.number), bad.reason) for bad in report.bad_lines],
        )


def _contenders(report: Report) -> Iterator[str]:
    for summary in report.contenders:
        yield f"<h2>{escape(summary.name)}</h2>"
        yield f"<p>{summary.judged} judged, {summary.failed} failed.</p>"
        yield '<div class="plots">'
        yield from _plots(summary)
        yield "</div>"
        yield _table(("measure", "value (95 %)"), headline_rows(summary))
        yield from _groups("source", summary.by_source)
        yield from _groups("language", summary.by_language)
        yield from _groups("category", summary.by_category)
        yield from _signals(summary)


def _plots(summary: Summary) -> Iterator[str]:
    yield roc_plot([(summary.name, summary.roc)])
    yield det_plot([(summary.name, summary.roc)])
    yield reliability_plot(summary.reliability)
    if summary.dialogues.attacks:
        yield histogram(summary.dialogues.spoken_counts)
    if summary.worst_misses:
        yield trajectories(summary.worst_misses)


def _groups(title: str, groups: Sequence[Group]) -> Iterator[str]:
    rows = [(group.name, *group_cells(group)) for group in groups]
    yield f'<div class="scroll">{_table((title, *GROUP_HEAD), rows)}</div>'


def _signals(summary: Summary) -> Iterator[str]:
    found = summary.signals
    if found is None or not found.caught:
        return
    yield _table(
        ("signal", "caught alone", "needed", "mean nats"),
        [(s.signal, str(s.alone), str(s.needed), number(s.mean_nats)) for s in found.signals],
    )
    yield (
        f"<p>Of {found.caught} attacks caught, {found.only_together} took several signals "
        f"together and {found.hard} the rules' veto.</p>"
    )


def _comparison(report: Report) -> Iterator[str]:
    if len(report.contenders) < 2:
        return
    first = report.pairings[0].first
    yield "<h2>Comparison</h2>"
    curves = [(summary.name, summary.roc) for summary in report.contenders]
    yield f'<div class="plots">{roc_plot(curves)}{det_plot(curves)}'
    yield f"{attribution_plot(report.attribution)}</div>"
    yield _table(
        (f"{first} against", f"only {first} right", "only it right", "McNemar p"),
        [
            (p.second, str(p.only_first_right), str(p.only_second_right), f"{p.p_value:.2g}")
            for p in report.pairings
        ],
    )
    yield (
        f"<p>Of {report.attribution.attacks} attacks, {report.attribution.only_together} were "
        "caught only by a combination and by none of its parts.</p>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
