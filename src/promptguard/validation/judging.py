"""Contenders judge cases, with the code that serves: turn by turn, or as single prompts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Protocol

from promptguard.config import ControllerConfig, PolicyConfig, PromptGuardConfig, config_hash
from promptguard.conversation import Message, Role
from promptguard.core.ensemble import merge
from promptguard.core.layers import LayerPriority
from promptguard.core.prompt import PromptInput
from promptguard.errors import EvaluationError, InputError, ModelError, PromptGuardError
from promptguard.evaluators.metrics import LayerResult, ReciprocityMetrics
from promptguard.risk.ledger import mode_named
from promptguard.turns.input import Step, steps_of
from promptguard.turns.walk import walk
from promptguard.usage import Usage
from promptguard.validation.contenders import Contender, Openers, Outcome
from promptguard.validation.dataset import Case
from promptguard.verdict import FLAGGING, Mode, Verdict


class _Judge(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...

    def judge(self, case: Case) -> tuple[Outcome, ...]: ...


class CaseJudge:
    """All contenders together; one tuple of outcomes per case, in the contenders' order."""

    def __init__(self, contenders: Sequence[Contender], openers: Openers) -> None:
        self._names = tuple(contender.name for contender in contenders)
        self._parts: list[_Judge] = []
        asking: dict[str, list[Contender]] = {}
        for contender in contenders:
            if isinstance(contender.settings, PromptGuardConfig):
                # Contenders that differ only in types and merge are answered by one evaluation.
                key = config_hash(_question_of(contender.settings, ("any",)))
                asking.setdefault(key, []).append(contender)
            else:
                self._parts.append(_EngineJudge(contender, openers))
        self._parts += [_PromptJudge(group, openers) for group in asking.values()]

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return every contender's outcome; who could not judge says so in `error`."""
        found = {o.contender: o for part in self._parts for o in _judged(part, case)}
        return tuple(found[name] for name in self._names)


def _judged(part: _Judge, case: Case) -> tuple[Outcome, ...]:
    try:
        return part.judge(case)
    except ModelError:
        raise
    except PromptGuardError as error:
        reason = str(error)
    except Exception as error:  # one case must not take the others with it
        reason = f"Judging failed with {type(error).__name__}."
    return tuple(Outcome(index=case.index, contender=name, error=reason) for name in part.names)


class _EngineJudge:
    """One contender that is a configuration of the engine."""

    def __init__(self, contender: Contender, openers: Openers) -> None:
        assert isinstance(contender.settings, ControllerConfig)
        self._contender = contender
        self._judge = openers.judge(contender.settings)
        self._flag_from = flag_mode(contender.settings.policy)

    @property
    def names(self) -> tuple[str, ...]:
        """The contender's name."""
        return (self._contender.name,)

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return the contender's outcome."""
        steps = steps_of(case.messages)
        if not steps:
            raise InputError("There is no user or tool message to judge.")
        verdicts, turn_ms = self._walk(case, steps)
        flagged = next((verdict for verdict in verdicts if self._flags(verdict)), None)
        peak = max(verdicts, key=lambda verdict: verdict.turn_risk)
        decided = flagged or peak
        outcome = Outcome(
            index=case.index,
            contender=self._contender.name,
            score=peak.turn_risk,
            is_flagged=flagged is not None,
            flagged_turn=None if flagged is None else flagged.turn,
            is_hard=flagged is not None and flagged.is_hard and self._contender.counts_hard,
            risks=tuple(verdict.turn_risk for verdict in verdicts),
            turn_ms=tuple(turn_ms),
            prior=decided.prior,
            nats=tuple((entry.signal, round(entry.nats, 4)) for entry in decided.evidence),
        )
        return (outcome,)

    def _walk(self, case: Case, steps: Sequence[Step]) -> tuple[list[Verdict], list[float]]:
        verdicts, turn_ms = [], []
        turns = walk(self._judge, steps, session_id=str(case.id))
        for _ in steps:
            start = time.perf_counter()
            verdicts.append(next(turns)[0])
            turn_ms.append(round((time.perf_counter() - start) * 1e3, 3))
        return verdicts, turn_ms

    def _flags(self, verdict: Verdict) -> bool:
        if self._contender.counts_hard:
            return verdict.action in FLAGGING
        modes = self._judge.weights.modes
        return self._flag_from is not None and (
            modes.mode_for(verdict.turn_risk) >= self._flag_from
        )


def flag_mode(policy: PolicyConfig) -> Mode | None:
    """Return the lowest mode in which a turn is blocked or given to a person; None: never."""
    starts = [name for name in (policy.block_from, policy.review_from) if name is not None]
    return min((mode_named(name) for name in starts), default=None)


class _PromptJudge:
    """Contenders that ask the same judges: asked once, merged as each of them would."""

    def __init__(self, contenders: Sequence[Contender], openers: Openers) -> None:
        self._contenders = tuple((one.name, _config(one)) for one in contenders)
        kinds = (kind for _, config in self._contenders for kind in config.evaluation_types)
        self._types = tuple(dict.fromkeys(kinds))
        self._guard = openers.guard(_question_of(self._contenders[0][1], self._types))
        # One loop for all cases, because the guard's connections live as long as their loop.
        self._runner = asyncio.Runner()

    @property
    def names(self) -> tuple[str, ...]:
        """The contenders' names."""
        return tuple(name for name, _ in self._contenders)

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return the contenders' outcomes."""
        prompts = tuple(prompts_of(case))
        if not prompts:
            raise InputError("There is no user or tool message to judge.")
        start, before = time.perf_counter(), self._spent()
        found = self._runner.run(self._guard.evaluate_batch([prompt for _, prompt in prompts]))
        turn_ms = (time.perf_counter() - start) * 1e3 / len(prompts)
        turns = []
        for (turn, _), item in zip(prompts, found, strict=True):
            if isinstance(item, PromptGuardError):
                return self._failed(case, item, before)
            turns.append((turn, item))
        return tuple(
            replace(
                self._outcome(case, name, config, turns, turn_ms),
                cost_usd=self._cost_since(before, config),
            )
            for name, config in self._contenders
        )

    def _failed(
        self, case: Case, error: PromptGuardError, before: Mapping[str, Usage]
    ) -> tuple[Outcome, ...]:
        return tuple(
            replace(_unjudged(case, name, error), cost_usd=self._cost_since(before, config))
            for name, config in self._contenders
        )

    def _spent(self) -> Mapping[str, Usage]:
        """Return what each evaluation type has cost so far, failed calls included."""
        spent: dict[str, Usage] = {}
        for row in self._guard.usage_report():
            spent[row.evaluation_type] = spent.get(row.evaluation_type, Usage()) + row.usage
        return spent

    def _cost_since(self, before: Mapping[str, Usage], config: PromptGuardConfig) -> float | None:
        not_asked = set(self._types) - set(config.evaluation_types)
        steps = [
            (before.get(kind, Usage()), usage)
            for kind, usage in self._spent().items()
            if kind not in not_asked
        ]
        if any(usage.unpriced_calls > known.unpriced_calls for known, usage in steps):
            return None
        return sum(usage.cost_usd - known.cost_usd for known, usage in steps)

    def _outcome(
        self,
        case: Case,
        name: str,
        config: PromptGuardConfig,
        turns: Sequence[tuple[int, ReciprocityMetrics]],
        turn_ms: float,
    ) -> Outcome:
        try:
            found = {turn: _falsehoods_of(metrics, config) for turn, metrics in turns}
        except EvaluationError as error:
            return _unjudged(case, name, error)
        flagged = next((turn for turn in found if any(f >= bar for f, bar in found[turn])), None)
        worst = {turn: max(falsehood for falsehood, _ in found[turn]) for turn in found}
        # Who asks only some of the types would have been faster than this.
        is_measured = len(config.evaluation_types) == len(self._types)
        return Outcome(
            index=case.index,
            contender=name,
            score=max(worst.values()),
            is_flagged=flagged is not None,
            flagged_turn=flagged,
            # A turn without words was not asked about, and is a turn all the same.
            risks=tuple(worst.get(n, 0.0) for n in range(1, len(steps_of(case.messages)) + 1)),
            turn_ms=(round(turn_ms, 3),) * len(found) if is_measured else (),
        )


def _unjudged(case: Case, contender: str, error: PromptGuardError) -> Outcome:
    return Outcome(index=case.index, contender=contender, error=str(error))


def _question_of(config: PromptGuardConfig, types: tuple[str, ...]) -> PromptGuardConfig:
    """Return what a configuration asks its judges, without how it merges the answers."""
    return config.model_copy(
        update={
            "evaluation_type": types,
            "ensemble_strategy": "max_falsehood",
            "weights": {},
            "decision_threshold": None,
        }
    )


def _falsehoods_of(
    metrics: ReciprocityMetrics, config: PromptGuardConfig
) -> tuple[tuple[float, float], ...]:
    """Return the falsehood that `config` sees in each user layer, and that layer's threshold."""
    layers = metrics.per_layer.values()
    users = (layer for layer in layers if layer.priority is LayerPriority.USER)
    return tuple(_layer_falsehood(layer, config) for layer in users)


def _layer_falsehood(layer: LayerResult, config: PromptGuardConfig) -> tuple[float, float]:
    asked = [one for one in layer.evaluations if one.evaluation_type in config.evaluation_types]
    if not asked:
        # Where partial answers count, those to the other contenders' types stand.
        raise EvaluationError(f"No judge could judge the {layer.name} layer.")
    values = {one.evaluation_type: one.value for one in asked}
    bar = config.decision_threshold
    falsehood = merge(config.ensemble_strategy, values, config.weights).falsehood
    return falsehood, fmean(one.threshold for one in asked) if bar is None else bar


def prompts_of(case: Case) -> Iterator[tuple[int, PromptInput]]:
    """Yield each turn that says something, with its number and what came before it.

    Its words and its contents are a user layer each.
    """
    history: list[Message] = []
    for number, step in enumerate(steps_of(case.messages), start=1):
        said = (step.turn.text, *(content.text for content in step.turn.contents))
        texts = tuple(text for text in said if text.strip())
        if texts:
            # All system messages that hold by then, as the engine is given them.
            system = step.turn.system or None
            yield number, PromptInput(user=texts, system=system, history=tuple(history))
        history += _messages_of(step)


def _messages_of(step: Step) -> Iterator[Message]:
    yield Message(role=Role.USER, content=step.turn.text)
    if step.reply is not None:
        yield Message(role=Role.ASSISTANT, content=step.reply)


def _config(contender: Contender) -> PromptGuardConfig:
    assert isinstance(contender.settings, PromptGuardConfig)
    return contender.settings
