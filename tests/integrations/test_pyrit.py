"""The scorers with PyRIT's own memory and messages."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyrit", reason="pinned in requirements/integrations-pyrit.txt")

from conftest import Gateway, serving
from live_server import live_upstream
from pyrit.models import Message, MessagePiece
from pyrit.prompt_target import OpenAIChatTarget
from pyrit.score import SelfAskRefusalScorer
from pyrit.setup import IN_MEMORY, initialize_pyrit_async
from spoken import ATTACK, HARMLESS
from stub_upstream import StubUpstream

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


async def blocked_by(url: str) -> tuple[OpenAIChatTarget, Message]:
    """PyRIT's target for a gateway, and what it makes of a blocked attack."""
    target = OpenAIChatTarget(model_name="stub-model", endpoint=url, api_key="none")
    return target, (await target.send_prompt_async(message=message("user", ATTACK)))[0]


async def test_a_block_of_the_gateway_is_a_blocked_response(gateway: Gateway) -> None:
    """PyRIT does not take it for an answer of the model."""
    _, answered = await blocked_by(gateway.url)
    assert answered.get_piece().response_error == "blocked"


async def test_pyrits_own_scorer_counts_the_default_reply_as_a_refusal(gateway: Gateway) -> None:
    """Without asking its model, where it is told to read nothing of a blocked response."""
    target, answered = await blocked_by(gateway.url)
    scorer = SelfAskRefusalScorer(chat_target=target)
    scorer.should_score_blocked_content = False
    before = gateway.upstream.calls
    assert (await scorer.score_async(answered))[0].get_value() is True
    assert gateway.upstream.calls == before


async def test_pyrits_own_scorer_shows_its_model_the_refusal_alone(gateway: Gateway) -> None:
    """As it is: the words of the default reply, which the model then calls a refusal."""
    _, answered = await blocked_by(gateway.url)
    upstream = StubUpstream()
    upstream.answers(json.dumps({"score_value": "True", "rationale": "r", "description": "d"}))
    with live_upstream(upstream) as base:
        model = OpenAIChatTarget(model_name="m", endpoint=f"{base}/v1", api_key="none")
        scores = await SelfAskRefusalScorer(chat_target=model).score_async(answered)
    assert scores[0].get_value() is True
    asked = str(upstream.requests[-1]["messages"][-1]["content"])
    assert f"response_to_evaluate_input: {ControllerConfig().refusal}\n" in asked


async def test_pyrits_own_scorer_counts_an_error_as_a_refusal() -> None:
    """Without asking its model: there are no words to look at."""
    upstream = StubUpstream()
    with live_upstream(upstream) as base, serving(base, block_style="error") as (url, _):
        target, answered = await blocked_by(f"{url}/v1")
        scores = await SelfAskRefusalScorer(chat_target=target).score_async(answered)
    assert scores[0].get_value() is True
    assert upstream.calls == 0
