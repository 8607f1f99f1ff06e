"""Builds the past of a conversation for the tests of the Frozen Instinct Layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stored_values import make_record

from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.temporal import fold_residue, update_escalations
from promptguard.protocols import FilReading
from promptguard.state import RECENT_TURNS, SessionState, TurnRecord
from promptguard.text import read_text

EMPTY = SessionState(session_id="test")


def record(
    turn: int,
    timestamp: float,
    *,
    harm: float = 0.0,
    directives: tuple[str, ...] = (),
    concepts: tuple[str, ...] = (),
    flagged: bool = False,
) -> TurnRecord:
    """Return a turn of which only what the layer looks at is given."""
    return make_record(
        turn=turn,
        timestamp=timestamp,
        harm_score=harm,
        directives=directives,
        concepts=concepts,
        is_flagged=flagged,
    )


@dataclass
class Talk:
    """A conversation judged turn by turn, keeping what a controller would keep."""

    layer: FrozenInstinct
    state: SessionState = EMPTY
    now: float = 1_000_000.0
    gap_s: float = 30.0

    def say(self, text: str, gap_s: float | None = None) -> FilReading:
        """Judge the next message and remember it."""
        self.now += self.gap_s if gap_s is None else gap_s
        reading = self.layer.assess(read_text(text), self.state.history, now=self.now)
        turn = (self.state.recent[-1].turn if self.state.recent else 0) + 1
        recent = (
            *self.state.recent,
            record(
                turn,
                self.now,
                harm=reading.harm_score,
                directives=reading.violated,
                concepts=reading.concepts,
                flagged=reading.is_blocking,
            ),
        )
        residues = self.state.residues
        for leaving in recent[:-RECENT_TURNS]:
            residues = fold_residue(residues, leaving)
        self.state = replace(
            self.state,
            recent=recent[-RECENT_TURNS:],
            residues=residues,
            escalations=update_escalations(
                self.state.escalations,
                reading,
                self.layer.parameters.escalation,
                turn=turn,
                now=self.now,
            ),
        )
        return reading
