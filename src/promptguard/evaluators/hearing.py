"""All questions about one prompt, asked at once: layers times evaluation types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.core.prompt import LayerText
from promptguard.errors import EvaluationError
from promptguard.evaluators.gate import Gate, all_or_none
from promptguard.evaluators.panel import Opinion, Panel
from promptguard.evaluators.prompts import TRUSTED_TYPE
from promptguard.evaluators.summary import JudgedLayer
from promptguard.protocols import LayerTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """Who is asked what, how many at once, and whether partial answers count."""

    panel: Panel
    gate: Gate
    evaluation_types: tuple[str, ...]
    keep_partial: bool = False

    async def hear(self, layers: Sequence[LayerText], *, turn: int) -> tuple[JudgedLayer, ...]:
        """Judge every layer.

        User layers get the ensemble, trusted layers their own evaluation type where the panel
        knows it. The first failure cancels the rest, unless partial answers count; a user
        layer that nobody could judge is an error in any case.
        """
        return await all_or_none(self._layer(layer, turn) for layer in layers)

    async def _layer(self, layer: LayerText, turn: int) -> JudgedLayer:
        types = self._types_for(layer)
        answers = await all_or_none(self._answer(_task(layer, kind, turn)) for kind in types)
        opinions = tuple(answer for answer in answers if isinstance(answer, Opinion))
        failures = tuple(answer for answer in answers if isinstance(answer, EvaluationError))
        if failures and not opinions and not layer.priority.is_trusted:
            raise failures[0]
        return JudgedLayer(text=layer, opinions=opinions, failures=failures, was_asked=bool(types))

    def _types_for(self, layer: LayerText) -> tuple[str, ...]:
        if not layer.priority.is_trusted:
            return self.evaluation_types
        return (TRUSTED_TYPE,) if self.panel.can_ask(TRUSTED_TYPE) else ()

    async def _answer(self, task: LayerTask) -> Opinion | EvaluationError:
        try:
            return await self.panel.ask(task, self.gate)
        except EvaluationError as error:
            if self.keep_partial:
                return error
            raise


def _task(layer: LayerText, evaluation_type: str, turn: int) -> LayerTask:
    return LayerTask(
        evaluation_type=evaluation_type,
        content=layer.content,
        layer=layer.name,
        context=layer.context,
        turn=turn,
    )
