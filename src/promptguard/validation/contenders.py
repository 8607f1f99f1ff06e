"""Who is measured: configurations of the engine and of the evaluation of single prompts."""

from __future__ import annotations

from dataclasses import dataclass

from promptguard.config import ControllerConfig, PromptGuardConfig, Settings
from promptguard.core.ensemble import MERGES
from promptguard.signals import load_signals

MODEL_SIGNALS = ("semantic", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A named configuration.

    `is_part` marks what a combination is made of, so that the report can say what only all
    together caught. `counts_hard` False leaves the rules' hard blocks out.
    """

    name: str
    settings: ControllerConfig | PromptGuardConfig
    is_part: bool = False
    counts_hard: bool = True


def engine(name: str, settings: Settings) -> Contender:
    """Return the engine as configured."""
    return Contender(name=name, settings=settings.conversation)


def dissected(settings: Settings, *, types: tuple[str, ...] | None = None) -> tuple[Contender, ...]:
    """Return the engine, its halves, every evaluation type alone, and every merge of them."""
    whole, asked = settings.conversation, settings.evaluation
    chosen = types or asked.evaluation_types
    return (
        Contender(name="engine", settings=whole),
        Contender(
            name="rules",
            settings=whole.model_copy(update={"use_model": False, "signals": _rule_signals(whole)}),
            is_part=True,
        ),
        Contender(
            name="model",
            settings=whole.model_copy(update={"signals": MODEL_SIGNALS}),
            is_part=True,
            counts_hard=False,
        ),
        *(
            Contender(
                name=kind,
                settings=asked.model_copy(update={"evaluation_type": (kind,)}),
                is_part=True,
            )
            for kind in chosen
        ),
        *_merges(asked, chosen),
    )


def _rule_signals(whole: ControllerConfig) -> tuple[str, ...]:
    """Return the signals that need no model: an absent model must not count as an acquittal."""
    names = load_signals().names() if whole.signals is None else whole.signals
    return tuple(name for name in names if name not in MODEL_SIGNALS)


def _merges(asked: PromptGuardConfig, types: tuple[str, ...]) -> tuple[Contender, ...]:
    if len(types) < 2:
        return ()
    return tuple(
        Contender(
            name=f"ensemble/{strategy}",
            settings=asked.model_copy(
                update={
                    "evaluation_type": types,
                    "ensemble_strategy": strategy,
                    "weights": {kind: asked.weights.get(kind, 1.0) for kind in types},
                }
            ),
        )
        for strategy in MERGES.names()
    )
