"""Which strategy works for which kind of answer: epsilon-greedy, from counted trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from promptguard.errors import DataError
from promptguard.probe.strategies import AnswerKind, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often a strategy was tried, and how often it led to a contradiction."""

    trials: int = 0
    wins: int = 0

    @property
    def value(self) -> float:
        """The expected share of wins; an untried strategy is worth a half, so it gets tried."""
        return (self.wins + 1) / (self.trials + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The tallies of every kind of answer and strategy tried so far."""

    tallies: Mapping[tuple[AnswerKind, Strategy], Tally] = field(default_factory=dict)

    def of(self, kind: AnswerKind, strategy: Strategy) -> Tally:
        """Return one tally, empty where it was never tried."""
        return self.tallies.get((kind, strategy), Tally())

    def learned(self, kind: AnswerKind, strategy: Strategy, *, is_win: bool) -> Scores:
        """Return the scores after one more trial."""
        before = self.of(kind, strategy)
        after = Tally(trials=before.trials + 1, wins=before.wins + is_win)
        return Scores(tallies={**self.tallies, (kind, strategy): after})


def choose_strategy(scores: Scores, kind: AnswerKind, *, epsilon: float, draw: Random) -> Strategy:
    """Return a strategy: any one with probability `epsilon`, else one of the best so far."""
    if draw.random() < epsilon:
        return draw.choice(tuple(Strategy))
    best = max(scores.of(kind, strategy).value for strategy in Strategy)
    # Ties are drawn, else the strategy named first would always be tried first.
    return draw.choice([s for s in Strategy if scores.of(kind, s).value == best])


def scores_to_json(scores: Scores) -> str:
    """Return the scores as JSON text."""
    body: dict[str, dict[str, dict[str, int]]] = {}
    for (kind, strategy), tally in sorted(scores.tallies.items()):
        body.setdefault(kind, {})[strategy] = {"trials": tally.trials, "wins": tally.wins}
    return json.dumps(body, indent=2) + "\n"


def scores_from_json(text: str | bytes) -> Scores:
    """Read what `scores_to_json` wrote; raises DataError."""
    try:
        tallies = {
            (AnswerKind(kind), Strategy(strategy)): _tally(item)
            for kind, row in json.loads(text).items()
            for strategy, item in row.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError("The scores of earlier probes are broken; remove the file.") from None
    return Scores(tallies=tallies)


def _tally(item: Mapping[str, int]) -> Tally:
    trials, wins = item["trials"], item["wins"]
    if not (isinstance(trials, int) and isinstance(wins, int) and 0 <= wins <= trials):
        raise ValueError("wins must be a part of the trials")
    return Tally(trials=trials, wins=wins)
