"""Cases judged as single prompts, each user turn by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from statistics import fmean

from promptguard.config import PromptGuardConfig
from promptguard.conversation import Message, Role
from promptguard.core.ensemble import merge
from promptguard.core.layers import LayerPriority
from promptguard.core.prompt import PromptInput
from promptguard.errors import InputError, PromptGuardError
from promptguard.evaluators.metrics import LayerResult, ReciprocityMetrics
from promptguard.turns.walk import Step, steps_of
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Case
from promptguard.validation.openers import Openers
from promptguard.validation.outcome import Outcome

_Prompt = tuple[int, PromptInput]


class PromptBench:
    """Contenders that ask the same judges: asked once, merged as each of them would."""

    def __init__(self, contenders: Sequence[Contender], openers: Openers) -> None:
        self._contenders = tuple((one.name, _config(one)) for one in contenders)
        kinds = (kind for _, config in self._contenders for kind in config.evaluation_types)
        self._types = tuple(dict.fromkeys(kinds))
        self._guard = openers.guard(question_of(self._contenders[0][1], self._types))
        self._runner = asyncio.Runner()

    @property
    def names(self) -> tuple[str, ...]:
        """The contenders' names."""
        return tuple(name for name, _ in self._contenders)

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return the contenders' outcomes."""
        prompts = tuple(_prompts(case))
        if not prompts:
            raise InputError("There is no user or tool message to judge.")
        start = time.perf_counter()
        found = self._runner.run(self._guard.evaluate_batch([prompt for _, prompt in prompts]))
        turn_ms = (time.perf_counter() - start) * 1e3 / len(prompts)
        turns = []
        for (turn, _), item in zip(prompts, found, strict=True):
            if isinstance(item, PromptGuardError):
                raise item
            turns.append((turn, item))
        return tuple(
            self._outcome(case, name, config, turns, turn_ms) for name, config in self._contenders
        )

    def _outcome(
        self,
        case: Case,
        name: str,
        config: PromptGuardConfig,
        turns: Sequence[tuple[int, ReciprocityMetrics]],
        turn_ms: float,
    ) -> Outcome:
        said = [(turn, *falsehood_of(metrics, config)) for turn, metrics in turns]
        flagged = next((turn for turn, falsehood, bar in said if falsehood >= bar), None)
        # Who asks only some of the types would have been faster than this.
        is_measured = len(config.evaluation_types) == len(self._types)
        return Outcome(
            index=case.index,
            contender=name,
            score=max(falsehood for _, falsehood, _ in said),
            is_flagged=flagged is not None,
            flagged_turn=flagged,
            risks=tuple(falsehood for _, falsehood, _ in said),
            turn_ms=(round(turn_ms, 3),) * len(said) if is_measured else (),
            cost_usd=sum(metrics.usage.cost_usd for _, metrics in turns),
        )


def question_of(config: PromptGuardConfig, types: tuple[str, ...]) -> PromptGuardConfig:
    """Return what a configuration asks its judges, without how it merges the answers."""
    return config.model_copy(
        update={
            "evaluation_type": types,
            "ensemble_strategy": "max_falsehood",
            "weights": {},
            "decision_threshold": None,
        }
    )


def falsehood_of(metrics: ReciprocityMetrics, config: PromptGuardConfig) -> tuple[float, float]:
    """Return the falsehood that `config` sees in the worst user layer, and its threshold."""
    layers = metrics.per_layer.values()
    users = [layer for layer in layers if layer.priority is LayerPriority.USER]
    return max(_layer_falsehood(layer, config) for layer in users)


def _layer_falsehood(layer: LayerResult, config: PromptGuardConfig) -> tuple[float, float]:
    asked = [one for one in layer.evaluations if one.evaluation_type in config.evaluation_types]
    values = {one.evaluation_type: one.value for one in asked}
    bar = config.decision_threshold
    falsehood = merge(config.ensemble_strategy, values, config.weights).falsehood
    return falsehood, fmean(one.threshold for one in asked) if bar is None else bar


def _prompts(case: Case) -> Iterator[_Prompt]:
    """Yield each turn that says something, with its number and what came before it."""
    system = next((m.content for m in case.messages if m.role is Role.SYSTEM), None)
    history: list[Message] = []
    for number, step in enumerate(steps_of(case.messages), start=1):
        texts = tuple(t for t in (step.turn.text, *step.turn.tool_contents) if t.strip())
        if texts:
            yield number, PromptInput(user=texts, system=system, history=tuple(history))
        history += _said(step)


def _said(step: Step) -> Iterator[Message]:
    yield Message(role=Role.USER, content=step.turn.text)
    if step.reply is not None:
        yield Message(role=Role.ASSISTANT, content=step.reply)


def _config(contender: Contender) -> PromptGuardConfig:
    assert isinstance(contender.settings, PromptGuardConfig)
    return contender.settings
