"""Judges by name: `local`, `recorded:PATH`, or a model at an endpoint; and what they can do."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from promptguard.config import LOCAL_MODEL, PromptGuardConfig
from promptguard.core.layers import DETECTION_F
from promptguard.errors import ConfigError, EvaluationError
from promptguard.protocols import Judge, LayerTask
from promptguard.registry import Registry
from promptguard.usage import Usage

JudgeFactory = Callable[[str, PromptGuardConfig], Judge]
"""Makes a judge from what follows `name:` in the model's name, and the configuration."""

JUDGES: Registry[JudgeFactory] = Registry("judge")
_MODULES = {LOCAL_MODEL: "local", "recorded": "recorded"}


@runtime_checkable
class Calibrated(Protocol):
    """A judge with a threshold of its own."""

    @property
    def decision_threshold(self) -> float:
        """Falsehood in [0,1] at which an evaluation counts as a detection."""


@runtime_checkable
class Selective(Protocol):
    """A judge that knows some evaluation types only; a judge without this knows all."""

    @property
    def evaluation_types(self) -> tuple[str, ...]:
        """The evaluation types it can judge."""


@runtime_checkable
class Metered(Protocol):
    """A judge or a provider whose calls may cost money."""

    @property
    def is_price_known(self) -> bool:
        """Whether the cost of a call will be known."""

    @property
    def is_free(self) -> bool:
        """Whether a call costs nothing."""


def cannot_judge(
    task: LayerTask,
    model: str,
    words: str,
    usage: Usage | None = None,
    kind: type[EvaluationError] = EvaluationError,
) -> EvaluationError:
    """Return the error of a judge that could not judge; `words` follow its name."""
    return kind(
        f"{model} {words}.",
        evaluation_type=task.evaluation_type,
        model=model,
        layer=task.layer,
        usage=usage,
    )


def is_price_known(judge: Judge) -> bool:
    """Return whether the cost of the judge's calls will be known."""
    return not isinstance(judge, Metered) or judge.is_price_known


def abandoned_usage(judge: Judge) -> Usage:
    """Return what a call cost that was cancelled before its answer came: it may be billed."""
    if not isinstance(judge, Metered):
        return Usage()
    return Usage(calls=1, unpriced_calls=int(not judge.is_free))


def threshold_of(judge: Judge) -> float:
    """Return the judge's calibrated threshold, else that of the scale for LLM judges."""
    return judge.decision_threshold if isinstance(judge, Calibrated) else DETECTION_F


def can_judge(judge: Judge, evaluation_type: str) -> bool:
    """Return whether the judge knows this evaluation type."""
    return not isinstance(judge, Selective) or evaluation_type in judge.evaluation_types


def named_judge(model: str, config: PromptGuardConfig) -> Judge | None:
    """Return the judge registered under `model` (or the part before its colon), else None.

    None means that the name is a model at an endpoint. Raises ConfigError where the judge
    cannot be made.
    """
    name, _, argument = model.partition(":")
    _load_built_in(name)
    return JUDGES.get(name)(argument, config) if name in JUDGES else None


def _load_built_in(name: str) -> None:
    if name not in _MODULES or name in JUDGES:
        return
    module = f"promptguard.evaluators.{_MODULES[name]}"
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"This installation has no {name!r} judge; name a model instead, "
            'such as models=["ollama/llama3.2"].'
        )
    # On use only: the embedded judge brings the libraries of the model.
    importlib.import_module(module)
