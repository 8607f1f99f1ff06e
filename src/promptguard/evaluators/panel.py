"""Asking judges: every layer and evaluation type of a prompt at once, within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import chain
from statistics import fmean
from typing import Protocol, TypeVar

from promptguard.core.layers import mean_of
from promptguard.core.prompt import LayerText
from promptguard.errors import EvaluationError, PromptGuardError
from promptguard.evaluators.opinion import JudgedLayer, Opinion, UsageMeter, UsageRow
from promptguard.evaluators.prompts import TRUSTED_TYPE
from promptguard.evaluators.registry import (
    abandoned_usage,
    can_judge,
    cannot_judge,
    threshold_of,
)
from promptguard.protocols import Judge, LayerJudgement, LayerTask

T = TypeVar("T")


class ConcurrencyLimit:
    """Lets at most `limit` judgements run at once, within one event loop.

    `meter` counts what each one cost, whatever came of it.
    """

    def __init__(self, limit: int, meter: UsageMeter | None = None) -> None:
        self._places = asyncio.Semaphore(limit)
        self._meter = meter or UsageMeter()

    async def judge(
        self,
        judge: Judge,
        task: LayerTask,
        *,
        timeout_s: float | None = None,
        when_asked: Callable[[], None] = lambda: None,
    ) -> LayerJudgement:
        """Ask once a place is free; the time limit starts then, and `when_asked` is called.

        Raises TimeoutError after `timeout_s`, else only errors of this package: what a judge
        raises on its own account becomes an EvaluationError naming type, model and layer.
        """
        async with self._places:
            when_asked()
            usage = abandoned_usage(judge)
            try:
                async with asyncio.timeout(timeout_s):
                    judgement = await _asked(judge, task, has_limit=timeout_s is not None)
                usage = judgement.usage
            except EvaluationError as error:
                usage = error.usage
                raise
            finally:
                kind = task.evaluation_type
                self._meter.add(UsageRow(evaluation_type=kind, model=judge.name, usage=usage))
            return judgement


class _NoAnswer(EvaluationError):
    """None of several judges could judge: the first one's words, and `failures`, those of each."""

    def __init__(self, failures: tuple[EvaluationError, ...]) -> None:
        first = failures[0]
        super().__init__(
            str(first),
            evaluation_type=first.evaluation_type,
            model=first.model,
            layer=first.layer,
            usage=first.usage,
        )
        self.failures = failures


class Panel(Protocol):
    """One or several judges that answer together."""

    async def ask(self, task: LayerTask, limit: ConcurrencyLimit) -> Opinion:
        """Return their common opinion; raises EvaluationError where there is none."""

    def can_ask(self, evaluation_type: str) -> bool:
        """Return whether all of them know this evaluation type."""


class ParallelPanel:
    """Asks all its judges at once and takes the mean; with one judge, that judge's value."""

    def __init__(self, judges: Sequence[Judge], *, keep_partial: bool = False) -> None:
        self._judges = tuple(judges)
        self._keep_partial = keep_partial

    def can_ask(self, evaluation_type: str) -> bool:
        """Return whether all of them know this evaluation type."""
        return all(can_judge(judge, evaluation_type) for judge in self._judges)

    async def ask(self, task: LayerTask, limit: ConcurrencyLimit) -> Opinion:
        """Return the mean; where partial answers count, the mean of those that came."""
        answers = await all_or_none(self._answer(judge, task, limit) for judge in self._judges)
        given = [
            (judge, answer)
            for judge, answer in zip(self._judges, answers, strict=True)
            if isinstance(answer, LayerJudgement)
        ]
        failures = tuple(answer for answer in answers if isinstance(answer, EvaluationError))
        if not given:
            raise _NoAnswer(failures)
        return Opinion(
            evaluation_type=task.evaluation_type,
            value=mean_of([answer.value for _, answer in given]),
            # The value is the judges' mean, and so is the threshold it is held against.
            threshold=fmean(threshold_of(judge) for judge, _ in given),
            judgements=tuple(answer for _, answer in given),
            failures=failures,
        )

    async def _answer(
        self, judge: Judge, task: LayerTask, limit: ConcurrencyLimit
    ) -> LayerJudgement | EvaluationError:
        try:
            return await limit.judge(judge, task)
        except EvaluationError as error:
            if self._keep_partial:
                return error
            raise


async def evaluate_layers(
    layers: Sequence[LayerText],
    *,
    panel: Panel,
    limit: ConcurrencyLimit,
    evaluation_types: tuple[str, ...],
    turn: int,
    keep_partial: bool = False,
) -> tuple[JudgedLayer, ...]:
    """Judge every layer.

    User layers get the ensemble, trusted layers their own evaluation type where the panel
    knows it. The first failure cancels the rest, unless partial answers count; a user layer
    that nobody could judge is an error in any case.
    """

    async def answer(task: LayerTask) -> tuple[Opinion | EvaluationError, ...]:
        try:
            return (await panel.ask(task, limit),)
        except EvaluationError as error:
            if keep_partial:
                return error.failures if isinstance(error, _NoAnswer) else (error,)
            raise

    async def judged(layer: LayerText) -> JudgedLayer:
        types = evaluation_types
        if layer.priority.is_trusted:
            types = (TRUSTED_TYPE,) if panel.can_ask(TRUSTED_TYPE) else ()
        asked = await all_or_none(answer(_task(layer, kind, turn)) for kind in types)
        answers = tuple(chain.from_iterable(asked))
        opinions = tuple(item for item in answers if isinstance(item, Opinion))
        failures = tuple(item for item in answers if isinstance(item, EvaluationError))
        if failures and not opinions and not layer.priority.is_trusted:
            raise failures[0]
        return JudgedLayer(text=layer, opinions=opinions, failures=failures, was_asked=bool(types))

    return await all_or_none(judged(layer) for layer in layers)


async def all_or_none(work: Iterable[Coroutine[object, object, T]]) -> tuple[T, ...]:
    """Run everything at once; the first failure cancels the rest and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in work]
    except BaseExceptionGroup as failures:
        # Raised below, outside of the handler, so that the group does not become its context.
        first = _first(failures)
    else:
        return tuple(task.result() for task in tasks)
    raise first


def _task(layer: LayerText, evaluation_type: str, turn: int) -> LayerTask:
    return LayerTask(
        evaluation_type=evaluation_type,
        content=layer.content,
        layer=layer.name,
        context=layer.context,
        turn=turn,
    )


async def _asked(judge: Judge, task: LayerTask, *, has_limit: bool) -> LayerJudgement:
    try:
        return await judge.judge(task)
    except EvaluationError:
        raise
    except TimeoutError:
        if has_limit:
            raise
        # Without a limit of ours it was the judge's own, which is a failure like any other.
        raise _failed(judge, task, "it took too long") from None
    except PromptGuardError as error:
        raise _failed(judge, task, str(error).removesuffix(".")) from error
    except Exception as error:
        raise _failed(judge, task, type(error).__name__) from error


def _failed(judge: Judge, task: LayerTask, why: str) -> EvaluationError:
    where = f"the {task.layer} layer for {task.evaluation_type}"
    return cannot_judge(task, judge.name, f"could not judge {where}: {why}")


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
