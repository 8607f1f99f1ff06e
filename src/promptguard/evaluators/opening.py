"""Which judge a model's name means: `local`, `recorded:PATH`, or a model at an endpoint."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from promptguard.config import LOCAL_MODEL, PromptGuardConfig
from promptguard.errors import ConfigError
from promptguard.protocols import Judge
from promptguard.registry import Registry

JudgeFactory = Callable[[str, PromptGuardConfig], Judge]
"""Makes a judge from what follows `name:` in the model's name, and the configuration."""

JUDGES: Registry[JudgeFactory] = Registry("judge")
_MODULES = {LOCAL_MODEL: "local", "recorded": "recorded"}

LLM_DECISION_THRESHOLD = 0.7


@runtime_checkable
class Calibrated(Protocol):
    """A judge that knows the falsehood from which its own word is a detection."""

    @property
    def decision_threshold(self) -> float:
        """Falsehood in [0,1] at which an evaluation counts as a detection."""


@runtime_checkable
class Selective(Protocol):
    """A judge that can look in some ways only; a judge without this can look in all."""

    @property
    def evaluation_types(self) -> tuple[str, ...]:
        """The evaluation types it can judge."""


def threshold_of(judge: Judge) -> float:
    """Return the judge's calibrated threshold, else that of the scale for LLM judges."""
    return judge.decision_threshold if isinstance(judge, Calibrated) else LLM_DECISION_THRESHOLD


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
    importlib.import_module(module)
