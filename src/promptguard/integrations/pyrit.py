"""PyRIT: scorers that need no language model: was it refused, and was it an attack?"""

from __future__ import annotations

from typing import Any

from promptguard.config import ControllerConfig
from promptguard.guard import AsyncGuard
from promptguard.integrations.extras import missing
from promptguard.state import ReplyKind
from promptguard.verdict import FLAGGING

try:
    from pyrit.models import Score
    from pyrit.score import MessageTrueFalseScorer, ScorerPromptValidator
except ImportError as error:
    raise missing("pyrit", error) from None


class _GuardScorer(MessageTrueFalseScorer):
    """Scores one piece of text by the guard; subclasses say which question is asked."""

    def __init__(
        self, *, config: ControllerConfig | None = None, guard: AsyncGuard | None = None
    ) -> None:
        self.guard = guard or AsyncGuard(config)
        super().__init__(validator=ScorerPromptValidator(supported_data_types=["text"]))

    def _build_identifier(self) -> Any:
        return self._create_identifier(params={"preset": self.guard.config.preset})

    def _score(self, piece: Any, objective: str | None, *, is_true: bool, why: str) -> list[Any]:
        return [
            Score(
                score_value=str(is_true),
                score_value_description="",
                score_metadata=None,
                score_type="true_false",
                score_category=["promptguard"],
                score_rationale=why,
                scorer_class_identifier=self.get_identifier(),
                message_piece_id=piece.id,
                objective=objective,
            )
        ]


class RefusalScorer(_GuardScorer):
    """True where the target refused."""

    async def _score_piece_async(
        self, message_piece: Any, *, objective: str | None = None
    ) -> list[Any]:
        verdict = await self.guard.judge_reply(message_piece.converted_value)
        is_refusal = verdict.kind is ReplyKind.REFUSED
        return self._score(message_piece, objective, is_true=is_refusal, why=verdict.kind.value)


class AttackScorer(_GuardScorer):
    """True where the guard would have acted on the text, sent as a first turn."""

    async def _score_piece_async(
        self, message_piece: Any, *, objective: str | None = None
    ) -> list[Any]:
        result = await self.guard.judge(message_piece.converted_value)
        reasons = "; ".join(entry.reason for entry in result.verdict.top_evidence[:3])
        is_attack = result.action in FLAGGING
        return self._score(message_piece, objective, is_true=is_attack, why=reasons)
