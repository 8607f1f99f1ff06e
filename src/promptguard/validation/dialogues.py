"""How early an attack that takes several turns is seen, and how often talk is taken for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from promptguard.validation.groups import Judged
from promptguard.validation.intervals import Measure, Redrawn, measure

PARTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Blocks against the first openly hostile turn, where that turn is known."""

    known: int
    early: int
    on_turn: int
    late: int
    missed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogues:
    """Conversations of at least two turns.

    `share_spoken` is the mean share of an attack's turns that were spoken when it was seen,
    `lead_turns` the mean number of turns still to come. `spoken_counts[i]` counts the attacks
    seen in the i-th tenth.
    """

    attacks: int
    benign: int
    detection_rate: Measure
    false_alarms_per_1000: Measure
    detection_turn: float | None
    share_spoken: float | None
    lead_turns: float | None
    spoken_counts: tuple[int, ...]
    timing: Timing


def dialogues_of(judged: Sequence[Judged], pool: Redrawn) -> Dialogues:
    """Measure the cases that have at least two turns."""
    talks = [(case, o) for case, o in judged if o.turns >= 2]
    attacks = [(case, o) for case, o in talks if case.is_attack]
    benign = [o for case, o in talks if not case.is_attack]
    seen = [(o.flagged_turn, o.turns) for _, o in attacks if o.flagged_turn is not None]
    alarms = sum(o.is_flagged for o in benign)
    counts = [0] * PARTS
    for turn, turns in seen:
        counts[min(PARTS - 1, (turn * PARTS - 1) // turns)] += 1
    return Dialogues(
        attacks=len(attacks),
        benign=len(benign),
        detection_rate=_share(len(seen), len(attacks), 1.0, pool),
        false_alarms_per_1000=_share(alarms, len(benign), 1000.0, pool),
        detection_turn=float(median(turn for turn, _ in seen)) if seen else None,
        share_spoken=fmean(turn / turns for turn, turns in seen) if seen else None,
        lead_turns=fmean(turns - turn for turn, turns in seen) if seen else None,
        spoken_counts=tuple(counts),
        timing=timing_of(attacks),
    )


def timing_of(attacks: Sequence[Judged]) -> Timing:
    """Count early, on-turn, late and missed blocks."""
    known = [(case.attack_turn, o.flagged_turn) for case, o in attacks if case.attack_turn]
    blocked = [(turn, flagged) for turn, flagged in known if turn and flagged is not None]
    return Timing(
        known=len(known),
        early=sum(flagged < turn for turn, flagged in blocked),
        on_turn=sum(flagged == turn for turn, flagged in blocked),
        late=sum(flagged > turn for turn, flagged in blocked),
        missed=len(known) - len(blocked),
    )


def _share(part: int, whole: int, scale: float, pool: Redrawn) -> Measure:
    if not whole:
        return Measure()
    return measure(scale * part / whole, scale * pool.hits(part, whole) / whole)
