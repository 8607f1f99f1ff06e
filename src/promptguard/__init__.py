"""Guards conversations with language models, offline, and explains itself.

Importing this package does nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptguard.config import (
        ControllerConfig,
        EvaluationMode,
        PromptGuardConfig,
        Settings,
        load_settings,
    )
    from promptguard.controller import Controller
    from promptguard.conversation import Message, Role
    from promptguard.core.decision import Decision
    from promptguard.core.neutrosophic import Neutrosophic
    from promptguard.core.prompt import PromptInput
    from promptguard.errors import (
        ConfigError,
        EvaluationError,
        InputError,
        ModelError,
        PromptGuardError,
        ProviderError,
        StoreError,
    )
    from promptguard.evaluation import PromptGuard
    from promptguard.evaluators.metrics import ReciprocityMetrics
    from promptguard.rubrics.contradiction import judge_contradiction, rubric

_HOMES = {
    "ConfigError": "errors",
    "Controller": "controller",
    "ControllerConfig": "config",
    "Decision": "core.decision",
    "EvaluationError": "errors",
    "EvaluationMode": "config",
    "InputError": "errors",
    "Message": "conversation",
    "ModelError": "errors",
    "Neutrosophic": "core.neutrosophic",
    "PromptGuard": "evaluation",
    "PromptGuardConfig": "config",
    "PromptGuardError": "errors",
    "PromptInput": "core.prompt",
    "ProviderError": "errors",
    "ReciprocityMetrics": "evaluators.metrics",
    "Role": "conversation",
    "Settings": "config",
    "StoreError": "errors",
    "judge_contradiction": "rubrics.contradiction",
    "load_settings": "config",
    "rubric": "rubrics.contradiction",
}

__all__ = [
    "ConfigError",
    "Controller",
    "ControllerConfig",
    "Decision",
    "EvaluationError",
    "EvaluationMode",
    "InputError",
    "Message",
    "ModelError",
    "Neutrosophic",
    "PromptGuard",
    "PromptGuardConfig",
    "PromptGuardError",
    "PromptInput",
    "ProviderError",
    "ReciprocityMetrics",
    "Role",
    "Settings",
    "StoreError",
    "judge_contradiction",
    "load_settings",
    "rubric",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'promptguard' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"promptguard.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
