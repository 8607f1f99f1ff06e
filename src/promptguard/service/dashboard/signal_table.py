"""What each signal may add, and what each did in the sessions stored here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from promptguard.risk.weights import Weights
from promptguard.service.dashboard.charts import Bar, evidence_bars
from promptguard.service.dashboard.markup import esc, nats_text
from promptguard.state import Mode, SessionState

_NOTABLE_NATS = 0.5
_LOUD = Mode.SUSPECT


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A signal over many sessions: how often it spoke up, its mean in risky and in other ones."""

    signal: str
    sessions: int
    risky_nats: float
    other_nats: float


def weights_html(said: Mapping[str, str], weights: Weights) -> str:
    """Return what each signal in use looks for and the most it may weigh."""
    rows = "".join(
        f'<tr><th scope="row">{esc(name.replace("_", " "))}</th><td>{esc(line)}</td>'
        f"<td>{_kind(weights, name)}</td>"
        f'<td class="num">{_limit(weights, name)}</td></tr>'
        for name, line in said.items()
    )
    return (
        f"<p>Weights {esc(weights.version)}, fitted on {esc(weights.fitted_on)}.</p>"
        '<table class="plain"><thead><tr><th scope="col">Signal</th><th scope="col">Looks at</th>'
        '<th scope="col">Adds</th><th scope="col" class="num">At most (nats)</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def here_html(states: Sequence[SessionState]) -> str:
    """Return what the signals did in these sessions."""
    shares = shares_of(states)
    if not shares:
        return '<p class="quiet">No evidence is stored yet.</p>'
    risky = sum(state.mode >= _LOUD for state in states)
    rows = "".join(
        f'<tr><th scope="row">{esc(share.signal.replace("_", " "))}</th>'
        f'<td class="num">{share.sessions:,}</td><td class="num">{nats_text(share.risky_nats)}</td>'
        f'<td class="num">{nats_text(share.other_nats)}</td></tr>'
        for share in shares
    )
    bars = [Bar(name=share.signal, nats=share.risky_nats) for share in shares]
    return (
        f"<p>The newest {len(states):,} sessions, {risky:,} of them at {_LOUD.name} or above. "
        "Nobody has checked these verdicts: this shows what the signals did, not whether they "
        f'were right.</p><div class="side-by-side"><div><h3>Mean nats in risky sessions</h3>'
        f"{evidence_bars(bars, title='Mean evidence in risky sessions', width=420)}</div>"
        '<table class="plain"><thead><tr><th scope="col">Signal</th><th scope="col" class="num">'
        f"Sessions with ±{_NOTABLE_NATS} nats</th><th scope='col' class='num'>Mean, risky</th>"
        f"<th scope='col' class='num'>Mean, other</th></tr></thead><tbody>{rows}</tbody></table>"
        "</div>"
    )


def shares_of(states: Sequence[SessionState]) -> tuple[Share, ...]:
    """Sum up the ledgers, the signal that weighs most in risky sessions first."""
    sums: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for state in states:
        in_session: dict[str, float] = defaultdict(float)
        for entry in state.ledger.entries:
            in_session[entry.signal] += entry.nats
        for signal, nats in in_session.items():
            sums[signal].append((state.mode >= _LOUD, nats))
    risky = sum(state.mode >= _LOUD for state in states)
    shares = [
        Share(
            signal=signal,
            sessions=sum(abs(nats) >= _NOTABLE_NATS for _, nats in found),
            risky_nats=_mean([nats for is_risky, nats in found if is_risky], risky),
            other_nats=_mean(
                [nats for is_risky, nats in found if not is_risky], len(states) - risky
            ),
        )
        for signal, found in sums.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.risky_nats))


def _mean(values: Sequence[float], count: int) -> float:
    return sum(values) / count if count else 0.0


def _kind(weights: Weights, name: str) -> str:
    found = weights.signals.get(name)
    if found is None:
        return '<span class="quiet">no weight</span>'
    return "every turn anew" if found.kind == "event" else "its change since the last turn"


def _limit(weights: Weights, name: str) -> str:
    found = weights.signals.get(name)
    return "–" if found is None else f"{max(abs(found.nats(0.0)), abs(found.nats(1.0))):.1f}"
