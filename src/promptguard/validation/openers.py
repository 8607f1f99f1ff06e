"""How the things that judge are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from promptguard.config import ControllerConfig, PromptGuardConfig
from promptguard.guard import PromptGuard
from promptguard.turns.judge import TurnJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class Openers:
    """Makers of judge and guard; picklable where several processes are used."""

    judge: Callable[[ControllerConfig], TurnJudge] = TurnJudge.open
    guard: Callable[[PromptGuardConfig], PromptGuard] = PromptGuard
