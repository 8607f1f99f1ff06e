"""The line of JSON that a scan writes for each record; the only place here that reads a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from promptguard.config import ControllerConfig
from promptguard.corpus import judged
from promptguard.records import Fault, Record
from promptguard.turns.judge import TurnJudge
from promptguard.verdict import FLAGGING, Mode

Opener = Callable[[ControllerConfig], TurnJudge]
"""Makes the judge of a process; picklable where there are several."""


def open_judge(config: ControllerConfig) -> TurnJudge:
    """Return a judge that is ready: a model that cannot be loaded fails here, not per record."""
    judge = TurnJudge.open(config)
    if judge.encoder is not None:
        # Readers are loaded at first use; this is it.
        judge.encoder.embed(("ready",))
    return judge


def lines_of(judge: TurnJudge, items: Sequence[Record | Fault]) -> list[str]:
    """Return one line for each item; what cannot be judged gets a line with `error`."""
    return [line_of(judge, item) for item in items]


def line_of(judge: TurnJudge, item: Record | Fault) -> str:
    """Return the line of one item."""
    if isinstance(item, Fault):
        return error_line(item, item.reason)
    found = judged(judge, item)
    if found.error:
        return error_line(item, found.error)
    # By action first: a stripped content or a hard rule acts at a low risk as well.
    worst = max(found.verdicts, key=lambda v: (v.action.severity, v.turn_risk))
    return json.dumps(
        {
            "id": item.id,
            "risk": found.risk,
            "flagged": found.is_flagged,
            "flagged_turn": next((v.turn for v in found.verdicts if v.action in FLAGGING), None),
            "mode": Mode(max(verdict.mode for verdict in found.verdicts)).name,
            "risks": [verdict.turn_risk for verdict in found.verdicts],
            "verdict": worst.to_dict(),
        }
    )


def lost_line(item: Record | Fault) -> str:
    """Return the line of an item that its process did not survive."""
    return error_line(item, "Judging ended its process; the record may be too large.")


def error_line(item: Record | Fault, reason: str) -> str:
    """Return the line of an item that was not judged, with where it stands in its file."""
    return json.dumps({"id": item.id, "file": item.file, "line": item.number, "error": reason})


def is_error(line: str) -> bool:
    """Say whether a line tells of a record that was not judged."""
    try:
        return "error" in json.loads(line)
    except (ValueError, TypeError):
        return False
