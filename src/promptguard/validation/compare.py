"""Contenders side by side: who is better beyond chance, and who caught what others missed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from promptguard.runs.report import Attribution, Pairing, SignalAttribution, SignalShare
from promptguard.validation.contenders import Contender, Outcome, Outcomes
from promptguard.validation.dataset import Case


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of such a split between equals; 1 where they never differ."""
    n = only_first + only_second
    if not n:
        return 1.0
    return min(1.0, 2 * binomial_upto(n, min(only_first, only_second), 0.5))


def binomial_upto(n: int, most: int, share: float) -> float:
    """Return the chance of at most `most` hits in `n` tries of `share`, which is inside (0, 1)."""
    if most >= n:
        return 1.0
    # In logarithms: powers and the coefficients for thousands of cases leave the range of floats.
    hit, miss, all_ways = math.log(share), math.log1p(-share), math.lgamma(n + 1)
    return math.fsum(
        math.exp(all_ways - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * hit + (n - k) * miss)
        for k in range(most + 1)
    )


def pairings(cases: Sequence[Case], outcomes: Outcomes) -> tuple[Pairing, ...]:
    """Compare the first contender with each of the others, on cases that both could judge."""
    first, *others = outcomes
    found = []
    for second in others:
        split: Counter[tuple[bool, bool]] = Counter()
        for case, ours, theirs in zip(cases, outcomes[first], outcomes[second], strict=True):
            if not ours.error and not theirs.error:
                split[ours.is_flagged == case.is_attack, theirs.is_flagged == case.is_attack] += 1
        only_first, only_second = split[True, False], split[False, True]
        found.append(
            Pairing(
                first=first,
                second=second,
                only_first_right=only_first,
                only_second_right=only_second,
                p_value=mcnemar(only_first, only_second),
            )
        )
    return tuple(found)


def attribution(
    cases: Sequence[Case], outcomes: Outcomes, contenders: Sequence[Contender]
) -> Attribution:
    """Count who caught which attacks."""
    names = tuple(outcomes)
    parts = {contender.name for contender in contenders if contender.is_part}
    caught = {
        name: {o.index for case, o in zip(cases, outcomes[name], strict=True) if _hit(case, o)}
        for name in names
    }
    by_parts = set().union(*(caught[name] for name in parts))
    by_combined = set().union(*(caught[name] for name in names if name not in parts))
    return Attribution(
        names=names,
        caught=tuple(len(caught[name]) for name in names),
        matrix=tuple(tuple(len(caught[a] - caught[b]) for b in names) for a in names),
        only_by=tuple(_only_by(name, caught, parts) for name in names),
        only_together=len(by_combined - by_parts) if parts else 0,
        attacks=sum(case.is_attack for case in cases),
    )


def _only_by(name: str, caught: dict[str, set[int]], parts: set[str]) -> int:
    rivals = (caught[other] for other in parts or set(caught) if other != name)
    return len(caught[name].difference(*rivals))


def signal_attribution(
    cases: Sequence[Case], outcomes: Sequence[Outcome], *, bar: float
) -> SignalAttribution:
    """Take the caught attacks apart; a turn is caught where prior + nats reach `bar`.

    One that was caught below it, for a content that is acted on earlier, is taken at what it
    reached.
    """
    caught = [o for case, o in zip(cases, outcomes, strict=True) if _hit(case, o)]
    summed = [o for o in caught if not o.is_hard]
    names = sorted({name for o in summed for name, _ in o.nats})
    return SignalAttribution(
        caught=len(caught),
        hard=len(caught) - len(summed),
        only_together=sum(all(nats < _short(o, bar) for _, nats in o.nats) for o in summed),
        signals=tuple(_signal_share(name, summed, bar) for name in names),
    )


def _signal_share(name: str, caught: Sequence[Outcome], bar: float) -> SignalShare:
    weighed = [(dict(o.nats).get(name, 0.0), _total(o), _short(o, bar)) for o in caught]
    return SignalShare(
        signal=name,
        alone=sum(nats >= short for nats, _, short in weighed),
        needed=sum(nats > 0 and total - nats < short for nats, total, short in weighed),
        mean_nats=sum(nats for nats, _, _ in weighed) / len(weighed),
    )


def _total(outcome: Outcome) -> float:
    return sum(nats for _, nats in outcome.nats)


def _short(outcome: Outcome, bar: float) -> float:
    """Return the nats that it took to be caught."""
    return min(bar - outcome.prior, _total(outcome))


def _hit(case: Case, outcome: Outcome) -> bool:
    return case.is_attack and outcome.is_flagged
