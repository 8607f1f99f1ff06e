"""The numbers of the Frozen Instinct Layer, read from their data file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from promptguard.config import TemporalSettings
from promptguard.errors import DataError
from promptguard.fil.directives import Directive


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseWeights:
    """What is added to the features of one message, and where the sum blocks."""

    intent_critical: float
    hypothetical_intent: float
    violation: float
    pseudo_legitimate_content: float
    block_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InertiaWeights:
    """How repeated events of one directive amplify the next."""

    window_turns: int
    free_events: int
    step: float
    max_amplification: float
    score_share: float
    hard_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayWeights:
    """How a past event fades, and the floor below which it does not."""

    half_life_s: float
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationWeights:
    """When recent messages count as an escalation, and what that adds."""

    rising_scores: int
    rising_last_at_least: float
    distinct_directives: int
    burst_messages: int
    burst_window_s: float
    max_events: int
    penalty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterfactualWeights:
    """When the past turns the current message into a violation, and how severe that is."""

    threshold: float
    divisor: float
    max_severity: float
    escalating_severity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpWeights:
    """How far back a message without a topic of its own is tied, and how much it may say."""

    reach_turns: int
    max_chars: int
    max_terms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilParameters:
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


def with_temporal(parameters: FilParameters, settings: TemporalSettings) -> FilParameters:
    """Return `parameters` with what is set in `settings` in place of theirs."""
    decay, past, rising = parameters.decay, parameters.counterfactual, parameters.escalation
    if settings.half_life_s is not None:
        decay = replace(decay, half_life_s=settings.half_life_s)
    if settings.cumulative_threshold is not None:
        past = replace(past, threshold=settings.cumulative_threshold)
    if settings.escalation_threshold is not None:
        rising = replace(rising, rising_last_at_least=settings.escalation_threshold)
    return replace(parameters, decay=decay, counterfactual=past, escalation=rising)


def read_parameters(path: str | Path | None = None) -> FilParameters:
    """Read the numbers from `path`, or the shipped ones; raises DataError where they are broken."""
    if path is None:
        return _shipped()
    return _parse(Path(path).read_text(encoding="utf-8"), str(path))


@lru_cache(maxsize=1)
def _shipped() -> FilParameters:
    name = "data/fil.toml"
    return _parse(files("promptguard").joinpath(name).read_text(encoding="utf-8"), name)


def _parse(source: str, name: str) -> FilParameters:
    try:
        body = tomllib.loads(source)
        # The table also holds `default_weight`, which is a number.
        personas = {key: value for key, value in body["persona"].items() if isinstance(value, dict)}
        parameters = FilParameters(
            version=body["version"],
            provenance=body["provenance"],
            severity=body["severity"],
            feature=body["feature"],
            pattern=body["pattern"],
            base=BaseWeights(**body["base"]),
            inertia=InertiaWeights(**body["inertia"]),
            decay=DecayWeights(**body["decay"]),
            escalation=EscalationWeights(**body["escalation"]),
            counterfactual=CounterfactualWeights(**body["counterfactual"]),
            follow_up=FollowUpWeights(**body["follow_up"]),
            hard_directives=frozenset(body["hard"]["directives"]),
            persona_default=body["persona"]["default_weight"],
            personas=personas,
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{name} does not hold the numbers of the layer: {error!r}.") from None
    _check(parameters, name)
    return parameters


def _check(parameters: FilParameters, name: str) -> None:
    known = {directive.value for directive in Directive}
    if set(parameters.severity) != known:
        raise DataError(f"{name}: [severity] must name each directive once.")
    named = set(parameters.hard_directives).union(*parameters.personas.values())
    if not named <= known:
        raise DataError(f"{name}: unknown directive {min(named - known)}.")
    if not 0.0 < parameters.decay.floor <= 1.0 or parameters.decay.half_life_s <= 0.0:
        raise DataError(f"{name}: [decay] needs a floor in (0, 1] and a positive half-life.")
