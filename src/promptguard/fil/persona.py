"""How much a directive weighs for the persona that is guarded."""

from __future__ import annotations

from promptguard.errors import ConfigError
from promptguard.fil.parameters import FilParameters


def persona_weight(parameters: FilParameters, persona: str, directive: str) -> float:
    """Return the weight of `directive` for `persona`; what a persona does not name weighs 0.5."""
    try:
        weights = parameters.personas[persona]
    except KeyError:
        known = ", ".join(sorted(parameters.personas))
        raise ConfigError(f"Unknown persona; use one of {known}.") from None
    return weights.get(directive, parameters.persona_default)
