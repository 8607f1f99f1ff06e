"""One line of log per turn: numbers and names, never words."""

from __future__ import annotations

import logging

from promptguard.service.auth import Principal
from promptguard.service.intake import Admission
from promptguard.service.logs import log


def log_turn(admission: Admission, principal: Principal) -> None:
    """Log what became of a turn."""
    result, state = admission.result, admission.state
    verdict = result.verdict
    log(
        logging.WARNING if result.is_blocked or result.fault else logging.INFO,
        "turn",
        session=state.session_id,
        tenant=state.tenant,
        key=principal.name,
        turn=state.turn_count,
        action=result.action.value,
        is_enforced=result.is_enforced,
        mode=state.mode.name,
        risk=round(state.accumulated_risk, 4),
        history=admission.history.value,
        is_judged=not result.fault,
        tags=list(verdict.tags) if verdict else [],
        signals=[entry.signal for entry in verdict.top_evidence[:3]] if verdict else [],
    )
