"""The numbers of the Frozen Instinct Layer, read from their data file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from promptguard.config import TemporalSettings
from promptguard.errors import ConfigError, DataError
from promptguard.fil.directives import Directive
from promptguard.fil.rules import FEATURES


class _Numbers(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BaseWeights(_Numbers):
    """What is added to the features of one message, and where the sum blocks."""

    intent_critical: float
    hypothetical_intent: float
    violation: float
    pseudo_legitimate_content: float
    block_at: float


class InertiaWeights(_Numbers):
    """How repeated events of one directive amplify the next."""

    window_turns: int
    free_events: int
    step: float
    max_amplification: float
    score_share: float
    hard_at: float


class DecayWeights(_Numbers):
    """How a past event fades, and the floor below which it does not."""

    half_life_s: float = Field(gt=0.0)
    floor: float = Field(gt=0.0, le=1.0)


class EscalationWeights(_Numbers):
    """When recent messages count as an escalation, and what that adds."""

    rising_scores: int
    rising_last_at_least: float
    distinct_directives: int
    burst_messages: int
    burst_window_s: float
    max_events: int
    penalty: float


class CounterfactualWeights(_Numbers):
    """When the past turns the current message into a violation, and how severe that is."""

    threshold: float
    divisor: float
    max_severity: float
    escalating_severity: float


class FollowUpWeights(_Numbers):
    """How far back a message without a topic of its own is tied, and how much it may say."""

    reach_turns: int
    max_chars: int
    max_terms: int


class FilParameters(_Numbers):
    """All numbers, with the version and provenance of the file they came from."""

    version: int
    provenance: str
    severity: Mapping[str, float]
    feature: Mapping[str, float]
    pattern: Mapping[str, float]
    base: BaseWeights
    inertia: InertiaWeights
    decay: DecayWeights
    escalation: EscalationWeights
    counterfactual: CounterfactualWeights
    follow_up: FollowUpWeights
    hard_directives: frozenset[str]
    persona_default: float
    personas: Mapping[str, Mapping[str, float]]

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        known = {directive.value for directive in Directive}
        if set(self.severity) != known:
            raise ValueError("[severity] must name each directive once")
        if not self.feature.keys() >= FEATURES:
            raise ValueError(f"[feature] lacks {min(FEATURES - self.feature.keys())}")
        named = set(self.hard_directives).union(*self.personas.values())
        if not named <= known:
            raise ValueError(f"unknown directive {min(named - known)}")
        return self

    def persona_weight(self, persona: str, directive: str) -> float:
        """Return the weight of `directive` for `persona`; what it does not name weighs 0.5."""
        if persona not in self.personas:
            raise ConfigError(f"Unknown persona; use one of {', '.join(sorted(self.personas))}.")
        return self.personas[persona].get(directive, self.persona_default)


def with_temporal(parameters: FilParameters, settings: TemporalSettings) -> FilParameters:
    """Return `parameters` with what is set in `settings` in place of theirs."""
    for table, name, value in (
        ("decay", "half_life_s", settings.half_life_s),
        ("counterfactual", "threshold", settings.cumulative_threshold),
        ("escalation", "rising_last_at_least", settings.escalation_threshold),
    ):
        if value is not None:
            changed = getattr(parameters, table).model_copy(update={name: value})
            parameters = parameters.model_copy(update={table: changed})
    return parameters


def read_parameters(path: str | Path | None = None) -> FilParameters:
    """Read the numbers from `path`, or the shipped ones; raises DataError where they are broken."""
    if path is None:
        return _shipped()
    try:
        return _parse(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the numbers {path}: {error}.") from None


@lru_cache(maxsize=1)
def _shipped() -> FilParameters:
    name = "data/fil.toml"
    return _parse(files("promptguard").joinpath(name).read_text(encoding="utf-8"), name)


def _parse(source: str, name: str) -> FilParameters:
    try:
        body = tomllib.loads(source)
        personas = dict(body.pop("persona"))
        hard = {"hard_directives": body.pop("hard")["directives"]}
        default = {"persona_default": personas.pop("default_weight"), "personas": personas}
        return FilParameters.model_validate(body | hard | default)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise DataError(f"{name}: {place}: {fault['msg']}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{name} does not hold the numbers of the layer: {error!r}.") from None
