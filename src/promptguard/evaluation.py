"""Evaluation of one prompt: judges, panel, merge and metrics put together."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from promptguard.config import EvaluationMode, PromptGuardConfig
from promptguard.conversation import messages_from
from promptguard.core.ensemble import merge
from promptguard.core.layers import UNEVALUATED
from promptguard.core.prompt import LayerText, PromptInput, layer_texts, turns_before
from promptguard.errors import ConfigError, PromptGuardError
from promptguard.evaluators.cache import CachingJudge, JudgementCache
from promptguard.evaluators.cascade import Budget, CascadePanel
from promptguard.evaluators.llm import LlmJudge
from promptguard.evaluators.metrics import ReciprocityMetrics, metrics_of
from promptguard.evaluators.opinion import CascadeReport, UsageMeter, UsageRow
from promptguard.evaluators.panel import ConcurrencyLimit, Panel, ParallelPanel, evaluate_layers
from promptguard.evaluators.prompts import evaluation_prompt, user_prompt
from promptguard.evaluators.registry import can_judge, named_judge
from promptguard.protocols import Judge, Provider
from promptguard.text import read_text

T = TypeVar("T")
BatchItem = ReciprocityMetrics | PromptGuardError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What belongs to one event loop."""

    judges: tuple[Judge, ...]
    providers: tuple[Provider, ...]
    limit: ConcurrencyLimit


class PromptGuard:
    """Judges single prompts. Safe to share between tasks, threads and event loops.

    Raises ConfigError at once for unknown names and settings that contradict each other.
    `judges` takes the place of `config.models`. Endpoints, cache and model are opened when
    first needed.
    """

    def __init__(
        self,
        config: PromptGuardConfig | None = None,
        *,
        judges: Sequence[Judge] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or PromptGuardConfig()
        self._given_judges = None if judges is None else tuple(judges)
        _check(self.config, len(self.config.models if judges is None else judges))
        kept = self.config.cache
        self._cache = (
            None
            if kept.path is None
            else JudgementCache(kept.path, ttl_s=kept.ttl_s, max_bytes=kept.max_bytes, clock=clock)
        )
        self._keeps_partial = self.config.on_partial == "continue"
        self._budget = Budget(self.config.budget, clock)
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = WeakKeyDictionary()
        self._lock = threading.Lock()
        # Not the lock above, which an evaluation takes while this one is held around it.
        self._sync_lock = threading.Lock()
        self._runner: asyncio.Runner | None = None
        self._cascade = CascadeReport()
        self._meter = UsageMeter()

    async def evaluate(
        self,
        prompt: str | None = None,
        *,
        system: str | None = None,
        application: str | None = None,
        user: str | Sequence[str] | None = None,
        history: Sequence[object] = (),
        turn: int | None = None,
        session: str | None = None,
    ) -> ReciprocityMetrics:
        """Judge one prompt; `prompt` and `user` name the same layer, so give one of them.

        `history` are the messages that really came before (objects with role and content),
        `session` is whose allowance a cascade spends. Raises InputError for what cannot be
        judged and EvaluationError where a judge fails.
        """
        given = PromptInput(
            prompt=prompt,
            system=system,
            application=application,
            user=user,
            history=messages_from(history) if len(history) else (),
            turn=turn,
            session=session,
        )
        return await self._evaluate(given)

    def evaluate_sync(
        self,
        prompt: str | None = None,
        *,
        system: str | None = None,
        application: str | None = None,
        user: str | Sequence[str] | None = None,
        history: Sequence[object] = (),
        turn: int | None = None,
        session: str | None = None,
    ) -> ReciprocityMetrics:
        """Judge one prompt where there is no event loop; see `evaluate`."""
        return self._run(
            lambda: self.evaluate(
                prompt,
                system=system,
                application=application,
                user=user,
                history=history,
                turn=turn,
                session=session,
            )
        )

    async def evaluate_batch(self, prompts: Iterable[str | PromptInput]) -> tuple[BatchItem, ...]:
        """Judge many prompts, in order; what fails is an error in its place."""
        items = list(prompts)
        results: list[BatchItem | None] = [None] * len(items)
        # The tasks draw from one iterator, so that none of them waits for a slow prompt of another.
        queue = iter(enumerate(items))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(items), self.config.max_concurrency)):
                group.create_task(self._evaluate_queued(queue, results))
        return tuple(result for result in results if result is not None)

    def evaluate_batch_sync(self, prompts: Iterable[str | PromptInput]) -> tuple[BatchItem, ...]:
        """Judge many prompts where there is no event loop; see `evaluate_batch`."""
        return self._run(lambda: self.evaluate_batch(prompts))

    def cascade_report(self) -> CascadeReport:
        """Return what the cascade passed on, cost and gained since this guard was made."""
        return self._cascade

    def usage_report(self) -> tuple[UsageRow, ...]:
        """Return what each evaluation type cost at each model since this guard was made.

        Every call counts, those of evaluations that failed or were cancelled too.
        """
        return self._meter.rows

    async def close(self) -> None:
        """Release the endpoints of this event loop, and the cache."""
        with self._lock:
            opened = self._opened.pop(asyncio.get_running_loop(), None)
        for provider in () if opened is None else opened.providers:
            await provider.close()
        if self._cache is not None:
            self._cache.close()

    def close_sync(self) -> None:
        """Release what `evaluate_sync` opened."""
        self._run(self.close)
        with self._sync_lock:
            if self._runner is not None:
                self._runner.close()
                self._runner = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _evaluate(self, given: PromptInput) -> ReciprocityMetrics:
        layers = layer_texts(given, max_chars=self.config.max_chars)
        turn = turns_before(given)
        opened = self._open()
        judged = await evaluate_layers(
            layers,
            panel=self._panel(opened.judges, given.session),
            limit=opened.limit,
            evaluation_types=self.config.evaluation_types,
            turn=turn,
            keep_partial=self._keeps_partial,
        )
        # Reading a long text takes a second, for which no other task must wait.
        disguises = await asyncio.to_thread(_disguises, layers)
        metrics = metrics_of(judged, self.config, disguises)
        if metrics.cascade is not None:
            with self._lock:
                self._cascade += metrics.cascade
        return metrics

    async def _evaluate_queued(
        self, queue: Iterator[tuple[int, str | PromptInput]], results: list[BatchItem | None]
    ) -> None:
        for index, item in queue:
            given = item if isinstance(item, PromptInput) else PromptInput(prompt=item)
            try:
                results[index] = await self._evaluate(given)
            except PromptGuardError as error:
                results[index] = error

    def _panel(self, judges: tuple[Judge, ...], session: str | None) -> Panel:
        if self.config.mode is not EvaluationMode.CASCADE:
            return ParallelPanel(judges, keep_partial=self._keeps_partial)
        return CascadePanel(
            judges,
            budget=self._budget,
            # Prompts without a session must not spend one common allowance.
            session=session or f"once-{secrets.token_hex(8)}",
            doubt_from=self.config.cascade_indeterminacy,
            seconds_per_call=self.config.budget.seconds_per_call,
            keep_partial=self._keeps_partial,
        )

    def _open(self) -> _Opened:
        loop = asyncio.get_running_loop()
        with self._lock:
            # A closed loop may still be referred to, and then stays in a weak dictionary.
            for gone in [known for known in self._opened if known.is_closed()]:
                del self._opened[gone]
            opened = self._opened.get(loop)
            if opened is None:
                opened = self._opened[loop] = self._open_judges()
            return opened

    def _open_judges(self) -> _Opened:
        providers: list[Provider] = []
        judges = self._given_judges or tuple(
            self._judge(model, providers) for model in self.config.models
        )
        if self.config.mode is EvaluationMode.SINGLE:
            judges = judges[:1]
        judges = tuple(self._cached(judge) for judge in judges)
        for judge, kind in product(judges, self.config.evaluation_types):
            if not can_judge(judge, kind):
                raise ConfigError(
                    f"{judge.name} cannot judge {kind}; choose another model or evaluation type."
                )
        limit = ConcurrencyLimit(self.config.max_concurrency, self._meter)
        return _Opened(judges=judges, providers=tuple(providers), limit=limit)

    def _judge(self, model: str, providers: list[Provider]) -> Judge:
        judge = named_judge(model, self.config)
        if judge is not None:
            return judge
        # Imported on use: the embedded judge needs no HTTP client.
        from promptguard.providers import open_provider

        provider = open_provider(model, self.config.endpoint)
        providers.append(provider)
        return LlmJudge(provider)

    def _cached(self, judge: Judge) -> Judge:
        if self._cache is None or not isinstance(judge, LlmJudge):
            return judge
        return CachingJudge(judge, self._cache, version_of=judge.version_of)

    def _run(self, make: Callable[[], Coroutine[object, object, T]]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with self._sync_lock:
                # One loop for all calls: connections live as long as their loop.
                self._runner = self._runner or asyncio.Runner()
                return self._runner.run(make())
        raise ConfigError("An event loop is running here: await evaluate() instead.")


def _check(config: PromptGuardConfig, judges: int) -> None:
    types = config.evaluation_types
    for name in types:
        user_prompt(name)
    if len(set(types)) < len(types):
        raise ConfigError("An evaluation type is named twice; name each once.")
    for name in config.weights:
        evaluation_prompt(name)
    # A trial merge raises for an unknown strategy and for weights that do not fit.
    merge(config.ensemble_strategy, dict.fromkeys(types, UNEVALUATED), config.weights)
    if not judges:
        raise ConfigError("There is no judge; name a model.")
    if config.mode is EvaluationMode.CASCADE and judges < 2:
        raise ConfigError('A cascade needs two models, such as ["local", "ollama/llama3.2"].')


def _disguises(layers: Sequence[LayerText]) -> tuple[str, ...]:
    names: list[str] = []
    for layer in layers:
        if not layer.priority.is_trusted:
            views = read_text(layer.content)
            names += [*views.disguises, *(view.method for view in views.decoded)]
    return tuple(dict.fromkeys(names))
