"""How many judgements run at once, and what becomes of the others when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

from promptguard.errors import EvaluationError, PromptGuardError
from promptguard.protocols import Judge, LayerJudgement, LayerTask

T = TypeVar("T")


class Gate:
    """Lets at most `limit` judgements through at once, within one event loop."""

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)

    async def judge(
        self, judge: Judge, task: LayerTask, *, timeout_s: float | None = None
    ) -> LayerJudgement:
        """Ask once a place is free; the time limit starts then.

        Raises TimeoutError after `timeout_s`, else only errors of this package: what a judge
        raises on its own account becomes an EvaluationError naming type, model and layer.
        """
        async with self._places, asyncio.timeout(timeout_s):
            try:
                return await judge.judge(task)
            except EvaluationError:
                raise
            except TimeoutError:
                if timeout_s is None:
                    raise _failed(judge, task, "it took too long") from None
                raise
            except PromptGuardError as error:
                raise _failed(judge, task, str(error)) from error
            except Exception as error:
                raise _failed(judge, task, type(error).__name__) from error


async def all_or_none(work: Iterable[Coroutine[object, object, T]]) -> tuple[T, ...]:
    """Run everything at once; the first failure cancels the rest and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in work]
    except BaseExceptionGroup as failures:
        first = _first(failures)
    else:
        return tuple(task.result() for task in tasks)
    raise first


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _failed(judge: Judge, task: LayerTask, why: str) -> EvaluationError:
    return EvaluationError(
        f"{judge.name} could not judge the {task.layer} layer for {task.evaluation_type}: {why}.",
        evaluation_type=task.evaluation_type,
        model=judge.name,
        layer=task.layer,
    )
