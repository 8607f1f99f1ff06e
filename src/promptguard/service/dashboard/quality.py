"""How good the guard is: the latest validation report, and what each signal does."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from starlette.requests import Request

from promptguard.errors import DataError
from promptguard.protocols import SessionQuery
from promptguard.risk.weights import Weights
from promptguard.runs.rendering import headline_rows
from promptguard.runs.report import Report, read_report
from promptguard.service.dashboard.charts import Bar, evidence_bars
from promptguard.service.dashboard.components import Tag, page_frame, panel, raw
from promptguard.service.dashboard.templates import notice, render
from promptguard.state import SessionState
from promptguard.verdict import Mode

_MAX_SESSIONS = 200
_NOTABLE_NATS = 0.5
_RISKY_FROM = Mode.SUSPECT


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """What a signal looks at and the most it may add; `most` is None where it has no weight."""

    signal: str
    looks_at: str
    kind: str = ""
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A signal over many sessions: where it was notable, its mean in risky and in other ones."""

    signal: str
    sessions: int
    risky_nats: float
    other_nats: float


async def show_quality(request: Request) -> None:
    """Build the page."""
    with page_frame(request, "/quality", "Quality") as page:
        judge = page.context.controller.judge
        Tag("h1", "Quality")
        with panel("Latest validation", classes="wide"):
            # A report lists its mistakes one by one and may be large.
            raw(await asyncio.to_thread(latest_html, page.context.report()))
        with panel("What each signal is for", classes="wide"):
            weights = judge.weights
            rows = [signal_row(name, signal, weights) for name, signal in judge.signals]
            raw(render("quality", "weights", weights.version, weights.fitted_on, rows))
        with panel("What each signal did here", classes="wide"):
            query = SessionQuery(tenant=page.tenant, limit=_MAX_SESSIONS)
            raw(shares_html(await page.store.sessions(query)))


def latest_html(path: Path) -> Markup:
    """Return the report at `path`, or say clearly that there is none."""
    try:
        report = read_report(path)
    except DataError as error:
        return notice(str(error), "bad")
    if report is None:
        return render("quality", "no_report", path)
    return report_html(report)


def report_html(report: Report) -> Markup:
    """Return the numbers of a validation run."""
    headlines = {each.name: headline_rows(each) for each in report.contenders}
    return render("quality", "report", report, headlines)


def shares_html(states: Sequence[SessionState]) -> Markup:
    """Return what the signals did in these sessions."""
    shares = shares_of(states)
    risky = sum(state.mode >= _RISKY_FROM for state in states)
    bars = [Bar(name=share.signal, nats=share.risky_nats) for share in shares]
    drawn = evidence_bars(bars, title="Mean evidence in risky sessions")
    mode = _RISKY_FROM.name
    return render("quality", "shares", shares, len(states), risky, mode, _NOTABLE_NATS, drawn)


def shares_of(states: Sequence[SessionState]) -> tuple[Share, ...]:
    """Sum up the ledgers, the signal that weighs most in risky sessions first."""
    sums: dict[tuple[str, bool], float] = defaultdict(float)
    notable: Counter[str] = Counter()
    for state in states:
        in_session: dict[str, float] = defaultdict(float)
        for signal, nats in (each for entry in state.ledger.entries for each in entry.signals):
            in_session[signal] += nats
        for signal, nats in in_session.items():
            sums[signal, state.mode >= _RISKY_FROM] += nats
            notable[signal] += abs(nats) >= _NOTABLE_NATS
    # Over all sessions of the kind: where a signal was silent it added nothing.
    risky = sum(state.mode >= _RISKY_FROM for state in states)
    shares = [
        Share(
            signal=signal,
            sessions=sessions,
            risky_nats=sums[signal, True] / max(1, risky),
            other_nats=sums[signal, False] / max(1, len(states) - risky),
        )
        for signal, sessions in notable.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.risky_nats))


def signal_row(name: str, signal: object, weights: Weights) -> SignalRow:
    """Return what the page says of one signal."""
    weight = weights.signals.get(name)
    if weight is None:
        return SignalRow(signal=name, looks_at=_first_line(signal))
    return SignalRow(
        signal=name,
        looks_at=_first_line(signal),
        kind="from how sure it is" if weight.link == "logit" else "in proportion to its score",
        # In a first turn or in a later one, which may weigh it otherwise.
        most=max(weight.nats(1.0), weight.nats(1.0, turn=2)),
    )


def _first_line(signal: object) -> str:
    """Return the first line of a signal's documentation, which says what it returns."""
    line = (inspect.getdoc(signal) or "").partition("\n")[0].removeprefix("Return ")
    return line[:1].upper() + line[1:]
