"""A TurnJudge that needs no model, for tests of everything around it."""

from __future__ import annotations

from functools import cache

from promptguard.config import ControllerConfig
from promptguard.testing import FakeEncoder
from promptguard.turns.judge import TurnJudge


@cache
def fake_judge(**settings: object) -> TurnJudge:
    """Return a judge that knows a few words instead of a language."""
    return TurnJudge.open(ControllerConfig(store="memory:", **settings), encoder=FakeEncoder())
