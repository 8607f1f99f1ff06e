"""The line of JSON that a scan writes for each record; the only place here that reads a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from promptguard.config import ControllerConfig
from promptguard.errors import InputError, ModelError, PromptGuardError
from promptguard.records import Fault, Record
from promptguard.turns.input import steps_of
from promptguard.turns.judge import TurnJudge
from promptguard.turns.walk import walk
from promptguard.verdict import FLAGGING, Mode, Verdict

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
    try:
        return _judged_line(item, judged(judge, item))
    except ModelError:
        # A model that cannot be loaded would fail for every record alike.
        raise
    except PromptGuardError as error:
        return error_line(item, str(error))
    except Exception as error:  # one record must not take the others with it
        # The error's own words could repeat the record.
        return error_line(item, f"Judging failed with {type(error).__name__}.")


def judged(judge: TurnJudge, record: Record) -> tuple[Verdict, ...]:
    """Return the verdict on every turn; raises InputError where there is no turn to judge."""
    steps = steps_of(record.messages)
    if not steps:
        raise InputError("There is no user or tool message to judge.")
    return tuple(verdict for verdict, _ in walk(judge, steps, session_id=str(record.id)))


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


def _judged_line(record: Record, verdicts: Sequence[Verdict]) -> str:
    flagged = next((v.turn for v in verdicts if v.action in FLAGGING), None)
    # By action first: a stripped content or a hard rule acts at a low risk as well.
    worst = max(verdicts, key=lambda v: (v.action.severity, v.turn_risk))
    return json.dumps(
        {
            "id": record.id,
            "risk": max(verdict.turn_risk for verdict in verdicts),
            "flagged": flagged is not None,
            "flagged_turn": flagged,
            "mode": Mode(max(verdict.mode for verdict in verdicts)).name,
            "risks": [verdict.turn_risk for verdict in verdicts],
            "verdict": worst.to_dict(),
        }
    )
