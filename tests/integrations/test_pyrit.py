"""The scorers with PyRIT's own memory and messages."""

from __future__ import annotations

import pytest

pytest.importorskip("pyrit", reason="pinned in requirements/integrations-pyrit.txt")

from pyrit.models import Message, MessagePiece
from pyrit.setup import IN_MEMORY, initialize_pyrit_async
from spoken import ATTACK, HARMLESS

from promptguard.config import ControllerConfig
from promptguard.integrations.pyrit import AttackScorer, RefusalScorer


def message(role: str, text: str) -> Message:
    piece = MessagePiece(role=role, original_value=text, conversation_id="c", not_in_memory=True)
    return Message(message_pieces=[piece])


@pytest.fixture(autouse=True)
async def memory() -> None:
    await initialize_pyrit_async(memory_db_type=IN_MEMORY, initializers=[])


async def test_our_refusal_counts_as_one() -> None:
    """And an answer does not."""
    scorer = RefusalScorer()
    for text, expected in ((ControllerConfig().refusal, True), ("Sunny and 21 degrees.", False)):
        scores = await scorer.score_async(message("assistant", text))
        assert scores[0].get_value() is expected


async def test_attacks_are_told_from_questions() -> None:
    """The rationale is the guard's evidence."""
    scorer = AttackScorer()
    assert (await scorer.score_async(message("user", HARMLESS)))[0].get_value() is False
    score = (await scorer.score_async(message("user", ATTACK)))[0]
    assert score.get_value() is True
    assert score.score_rationale
