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
    from promptguard.corpus import ConversationVerdict
    from promptguard.errors import (
        Blocked,
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
    from promptguard.guard import AsyncGuard, Guard
    from promptguard.rubrics.contradiction import judge_contradiction, rubric
    from promptguard.turns.exchanges import with_notice, without_withheld
    from promptguard.turns.replies import ReplyVerdict
    from promptguard.turns.result import TurnResult
    from promptguard.verdict import Action, ContentFinding, Mode, Verdict

__version__ = "0.13.0"

_HOMES = {
    "Action": "verdict",
    "AsyncGuard": "guard",
    "Blocked": "errors",
    "ConfigError": "errors",
    "ContentFinding": "verdict",
    "Controller": "controller",
    "ControllerConfig": "config",
    "ConversationVerdict": "corpus",
    "Decision": "core.decision",
    "EvaluationError": "errors",
    "EvaluationMode": "config",
    "Guard": "guard",
    "InputError": "errors",
    "Message": "conversation",
    "Mode": "verdict",
    "ModelError": "errors",
    "Neutrosophic": "core.neutrosophic",
    "PromptGuard": "evaluation",
    "PromptGuardConfig": "config",
    "PromptGuardError": "errors",
    "PromptInput": "core.prompt",
    "ProviderError": "errors",
    "ReciprocityMetrics": "evaluators.metrics",
    "ReplyVerdict": "turns.replies",
    "Role": "conversation",
    "Settings": "config",
    "StoreError": "errors",
    "TurnResult": "turns.result",
    "Verdict": "verdict",
    "judge_contradiction": "rubrics.contradiction",
    "load_settings": "config",
    "rubric": "rubrics.contradiction",
    "with_notice": "turns.exchanges",
    "without_withheld": "turns.exchanges",
}

__all__ = [
    "Action",
    "AsyncGuard",
    "Blocked",
    "ConfigError",
    "ContentFinding",
    "Controller",
    "ControllerConfig",
    "ConversationVerdict",
    "Decision",
    "EvaluationError",
    "EvaluationMode",
    "Guard",
    "InputError",
    "Message",
    "Mode",
    "ModelError",
    "Neutrosophic",
    "PromptGuard",
    "PromptGuardConfig",
    "PromptGuardError",
    "PromptInput",
    "ProviderError",
    "ReciprocityMetrics",
    "ReplyVerdict",
    "Role",
    "Settings",
    "StoreError",
    "TurnResult",
    "Verdict",
    "__version__",
    "judge_contradiction",
    "load_settings",
    "rubric",
    "with_notice",
    "without_withheld",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'promptguard' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"promptguard.{_HOMES[name]}"), name)
    # Kept as an ordinary attribute, so that this function runs once for each name.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
