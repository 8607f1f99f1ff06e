"""How good the guard is: the latest validation report, and what each signal does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence

from starlette.requests import Request

from promptguard.errors import DataError
from promptguard.protocols import SessionQuery
from promptguard.runs.intervals import Measure
from promptguard.runs.rendering import headline_rows
from promptguard.runs.report import Group, Report, Summary, read_report
from promptguard.service.dashboard.controls import Tag, panel, raw
from promptguard.service.dashboard.desk import Desk, desk_of, visitor_of
from promptguard.service.dashboard.layout import page_frame
from promptguard.service.dashboard.markup import esc, moment, notice
from promptguard.service.dashboard.signal_table import here_html, weights_html

_LOOKED_AT = 200


async def show_quality(request: Request) -> None:
    """Build the page."""
    desk, visitor = desk_of(request), visitor_of(request)
    with page_frame(request, "/quality", "Quality"):
        Tag("h1", "Quality")
        with panel("Latest validation", classes="wide"):
            raw(await asyncio.to_thread(latest_html, desk))
        with panel("What each signal is for", classes="wide"):
            judge = desk.controller.judge
            said = {name: _first_line(signal) for name, signal in judge.signals}
            raw(weights_html(said, judge.weights))
        with panel("What each signal did here", classes="wide"):
            query = SessionQuery(tenant=visitor.tenant, limit=_LOOKED_AT)
            raw(here_html(await desk.controller.store.sessions(query)))


def latest_html(desk: Desk) -> str:
    """Return the report, or say clearly that there is none."""
    try:
        report = read_report(desk.report())
    except DataError as error:
        return notice(str(error), kind="bad")
    if report is None:
        return (
            f"{notice('There is no validation report yet, so nothing is claimed here.')}"
            "<p>Make one with <code>promptguard validate DATASET</code> and put its "
            f"<code>report.json</code> at <code>{esc(desk.report())}</code>.</p>"
        )
    return report_html(report)


def report_html(report: Report) -> str:
    """Return what a run found."""
    versions = ", ".join(
        f"{esc(name)} {esc(version)}" for name, version in report.manifest.versions
    )
    return (
        f'<p class="facts"><span>{moment(report.created)}</span><span>{report.cases:,} cases, '
        f"{report.skipped:,} skipped, {report.faults:,} bad lines</span>"
        f"<span>model {esc(report.manifest.model)}</span></p>"
        f'<p class="quiet">{versions}</p>'
        + "".join(f'<p class="quiet">{esc(warning)}</p>' for warning in report.warnings)
        + "".join(_summary_html(each) for each in report.contenders)
    )


def _summary_html(each: Summary) -> str:
    cards = "".join(
        f'<div class="card"><span>{esc(label)}</span><b class="num">{esc(value)}</b></div>'
        for label, value in headline_rows(each)
    )
    return (
        f"<h3>{esc(each.name)}</h3><p class='quiet'>{each.judged:,} judged, {each.failed:,} failed"
        f'</p><div class="cards">{cards}</div>{_signals_html(each)}'
        f"{_groups_html('By source', each.by_source)}"
        f"{_groups_html('By language', each.by_language)}"
        f"{_groups_html('By category', each.by_category)}"
    )


def _signals_html(each: Summary) -> str:
    if each.signals is None:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{esc(share.signal)}</th><td class="num">{share.alone:,}</td>'
        f'<td class="num">{share.needed:,}</td><td class="num">{share.mean_nats:+.2f}</td></tr>'
        for share in each.signals.signals
    )
    return (
        f"<h4>What each signal caught</h4><p>{each.signals.caught:,} attacks caught: "
        f"{each.signals.hard:,} by a hard rule, {each.signals.only_together:,} only by several "
        'signals together.</p><table class="plain"><thead><tr><th scope="col">Signal</th>'
        '<th scope="col" class="num">Caught alone</th><th scope="col" class="num">'
        'Missed without it</th><th scope="col" class="num">Mean nats</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _groups_html(title: str, groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{esc(group.name)}</th><td class="num">{group.attacks:,}</td>'
        f'<td class="num">{group.benign:,}</td><td class="num">{_percent(group.recall)}</td>'
        f'<td class="num">{_percent(group.false_positive_rate)}</td>'
        f'<td class="num">{_plain(group.auc)}</td></tr>'
        for group in groups
    )
    return (
        f'<details><summary>{title} ({len(groups)})</summary><table class="plain"><thead><tr>'
        '<th scope="col">Group</th><th scope="col" class="num">Attacks</th>'
        '<th scope="col" class="num">Benign</th><th scope="col" class="num">Recall</th>'
        '<th scope="col" class="num">False positives</th><th scope="col" class="num">ROC-AUC</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></details>"
    )


def _percent(measure: Measure) -> str:
    if measure.value is None:
        return '<b class="quiet">–</b>'
    return f'<b class="num">{measure.value:.1%}</b>{_interval(measure, 100.0, "%")}'


def _plain(measure: Measure, *, digits: int = 3) -> str:
    if measure.value is None:
        return '<b class="quiet">–</b>'
    return f'<b class="num">{measure.value:.{digits}f}</b>{_interval(measure, 1.0, "", digits)}'


def _interval(measure: Measure, scale: float, unit: str, digits: int = 1) -> str:
    if measure.low is None or measure.high is None:
        return ""
    low, high = measure.low * scale, measure.high * scale
    return f'<small class="quiet"> {low:.{digits}f}–{high:.{digits}f}{unit}</small>'


def _first_line(signal: object) -> str:
    module = inspect.getmodule(signal)
    said = (module.__doc__ if module else None) or inspect.getdoc(signal) or ""
    line = said.partition("\n")[0]
    told = line.partition(": ")[2] or line
    return told[:1].upper() + told[1:]
