"""Contenders judge cases, with the code that serves: turn by turn, or as single prompts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from promptguard.config import ControllerConfig, PolicyConfig, PromptGuardConfig, config_hash
from promptguard.conversation import Message, Role
from promptguard.core.ensemble import merge
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


class CaseJudge:
    """All contenders together; one tuple of outcomes per case, in the contenders' order."""

    def __init__(self, contenders: Sequence[Contender], openers: Openers) -> None:
        self._names = tuple(contender.name for contender in contenders)
        self._parts: list[_EngineJudge | _PromptJudge] = []
        asking: dict[str, dict[str, PromptGuardConfig]] = {}
        for contender in contenders:
            if isinstance(contender.settings, PromptGuardConfig):
                # Contenders that differ only in types and merge are answered by one evaluation.
                key = config_hash(_question_of(contender.settings, ("any",)))
                asking.setdefault(key, {})[contender.name] = contender.settings
            else:
                self._parts.append(_EngineJudge(contender, contender.settings, openers))
        self._parts += [_PromptJudge(group, openers) for group in asking.values()]

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return every contender's outcome; who could not judge says so in `error`."""
        found = {o.contender: o for part in self._parts for o in _judged(part, case)}
        return tuple(found[name] for name in self._names)


def _judged(part: _EngineJudge | _PromptJudge, case: Case) -> tuple[Outcome, ...]:
    try:
        return part.judge(case)
    except ModelError:
        raise
    except PromptGuardError as error:
        reason = str(error)
    except Exception as error:  # one case must not take the others with it
        reason = f"Judging failed with {type(error).__name__}."
    return unjudged(case, part.names, reason)


def unjudged(case: Case, names: Iterable[str], reason: str) -> tuple[Outcome, ...]:
    """Return the outcomes of contenders that could not judge a case."""
    return tuple(Outcome(index=case.index, contender=name, error=reason) for name in names)


class _EngineJudge:
    """One contender that is a configuration of the engine."""

    def __init__(self, contender: Contender, config: ControllerConfig, openers: Openers) -> None:
        self.names = (contender.name,)
        self._counts_hard = contender.counts_hard
        self._judge = openers.judge(config)
        self._flag_from = flag_mode(config.policy)

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
            contender=self.names[0],
            score=peak.turn_risk,
            is_flagged=flagged is not None,
            flagged_turn=None if flagged is None else flagged.turn,
            is_hard=flagged is not None and flagged.is_hard and self._counts_hard,
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
        if self._counts_hard:
            return verdict.action in FLAGGING
        mode = self._judge.weights.modes.mode_for(verdict.turn_risk)
        return self._flag_from is not None and mode >= self._flag_from


def flag_mode(policy: PolicyConfig) -> Mode | None:
    """Return the lowest mode in which a turn is blocked or given to a person; None: never."""
    starts = [name for name in (policy.block_from, policy.review_from) if name is not None]
    return min((mode_named(name) for name in starts), default=None)


class _PromptJudge:
    """Contenders that ask the same judges: asked once, merged as each of them would."""

    def __init__(self, configs: Mapping[str, PromptGuardConfig], openers: Openers) -> None:
        self.names = tuple(configs)
        self._configs = configs
        kinds = (kind for config in configs.values() for kind in config.evaluation_types)
        self._types = tuple(dict.fromkeys(kinds))
        self._guard = openers.guard(_question_of(configs[self.names[0]], self._types))

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return the contenders' outcomes."""
        prompts = tuple(prompts_of(case))
        if not prompts:
            raise InputError("There is no user or tool message to judge.")
        start, before = time.perf_counter(), self._spent()
        found = self._guard.evaluate_batch_sync([prompt for _, prompt in prompts])
        turn_ms = round((time.perf_counter() - start) * 1e3 / len(prompts), 3)
        judged = {
            turn: item
            for (turn, _), item in zip(prompts, found, strict=True)
            if isinstance(item, ReciprocityMetrics)
        }
        error = next((item for item in found if isinstance(item, PromptGuardError)), None)
        outcomes = (
            self._outcome(case, name, config, judged, turn_ms)
            for name, config in self._configs.items()
        )
        return tuple(
            replace(outcome, cost_usd=self._cost_since(before, self._configs[outcome.contender]))
            for outcome in (outcomes if error is None else unjudged(case, self.names, str(error)))
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
        judged: Mapping[int, ReciprocityMetrics],
        turn_ms: float,
    ) -> Outcome:
        try:
            found = {turn: _falsehoods_of(metrics, config) for turn, metrics in judged.items()}
        except EvaluationError as error:
            return unjudged(case, (name,), str(error))[0]
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
            turn_ms=(turn_ms,) * len(found) if is_measured else (),
        )


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
    return tuple(_falsehood_of(layer, config) for layer in layers if not layer.priority.is_trusted)


def _falsehood_of(layer: LayerResult, config: PromptGuardConfig) -> tuple[float, float]:
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
        history.append(Message(role=Role.USER, content=step.turn.text))
        if step.reply is not None:
            history.append(Message(role=Role.ASSISTANT, content=step.reply))
