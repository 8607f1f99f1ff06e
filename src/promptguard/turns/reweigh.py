"""Stored turns weighed again under other settings: their scores count anew, nothing is read.

What cannot be known without reading stays as it was: whether the thorough reader would have been
asked, and what other weights for documents would make of a content, whose parts are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from promptguard.risk.ledger import Weighed, content_action, risk_of, weigh
from promptguard.state import SessionState
from promptguard.turns.contents import DEFINITIONS
from promptguard.turns.judge import ALLOWANCE, JUDGE, TurnJudge
from promptguard.verdict import Action, ContentFinding, SignalScore, Verdict

# Far from even odds a risk is rounded to exactly 0 or 1, whose log-odds are infinite.
_LEAST = 1e-12


@dataclass(slots=True, kw_only=True)
class Reweigher:
    """Weighs the turns of one session after another by a judge's weights, priors and policy.

    `document_shift` is how much higher the judge's prior for documents is than that under which
    the contents were judged, in nats. `state` is the session of the last turn, after it.
    """

    judge: TurnJudge
    document_shift: float = 0.0
    state: SessionState = field(default_factory=lambda: SessionState(session_id=""))

    def weigh(self, session_id: str, verdict: Verdict, *, now: float) -> Weighed:
        """Return what a stored verdict's scores come to; turns of a session come in order."""
        if session_id != self.state.session_id:
            self.state = SessionState(session_id=session_id)
        state, judge = self.state, self.judge
        at = max(now, state.updated)
        evidence = judge.weights.evidence(verdict.turn, self._known(verdict.scores))
        for allowed in (e for e in verdict.evidence if e.signal == ALLOWANCE):
            evidence = (*evidence, judge.allowed(verdict.turn, evidence, allowed.reason))
        weighed = weigh(
            state,
            turn=verdict.turn,
            prior=judge.prior_at(verdict.turn),
            evidence=evidence,
            findings=tuple(self._findings(verdict.content)),
            is_hard=verdict.is_hard,
            now=at,
            weights=judge.weights,
            policy=judge.config.policy,
        )
        blocked = state.profile.blocked + int(weighed.action is Action.BLOCK)
        self.state = replace(
            state,
            updated=at,
            mode=weighed.mode,
            ledger=weighed.ledger,
            lock=weighed.lock,
            profile=replace(state.profile, turns=verdict.turn, blocked=blocked),
        )
        return weighed

    def _known(self, scores: Iterable[SignalScore]) -> list[SignalScore]:
        """Leave out signals that the judge does not use, or that are of another version."""
        used = {JUDGE, *(name for name, _ in self.judge.signals)}
        weights = self.judge.weights.signals
        return [score for score in scores if score.name in used and score.name in weights]

    def _findings(self, findings: Iterable[ContentFinding]) -> Iterator[ContentFinding]:
        modes, policy = self.judge.weights.modes, self.judge.config.policy
        for finding in findings:
            risk = _shifted(finding.risk, self.document_shift)
            action = content_action(modes.mode_for(risk), policy)
            # A definition that no rule found poisoned is let pass whatever its risk.
            if finding.origin.startswith(DEFINITIONS) and finding.action is Action.ALLOW:
                action = Action.ALLOW
            yield replace(finding, risk=risk, action=action)


def _shifted(risk: float, nats: float) -> float:
    if not nats:
        return risk
    return risk_of(math.log(max(risk, _LEAST)) - math.log(max(1.0 - risk, _LEAST)) + nats)
