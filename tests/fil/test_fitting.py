"""The adaptive numbers can be set, and fitted to conversations."""

from __future__ import annotations

import pytest

from promptguard.config import TemporalSettings
from promptguard.errors import ConfigError, DataError
from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.fitting import LabelledConversation, TimedText, fit_parameters
from promptguard.fil.parameters import read_parameters, with_temporal
from promptguard.fil.rules import checked
from promptguard.patterns import parse_pack


def _talk(*texts: str, is_attack: bool, gap_s: float = 30.0) -> LabelledConversation:
    messages = [TimedText(text=text, timestamp=gap_s * at) for at, text in enumerate(texts)]
    return LabelledConversation(messages=tuple(messages), is_attack=is_attack)


PACK = """
language = "t"
version = 1
form = "words"
scripts = ["latin"]
[[entry]]
id = "t-suppose"
kind = "feature"
name = "hypothetical"
pattern = "suppose"
match = ["Suppose so"]
"""
# Each message scores .6, under the threshold; only their sequence gives them away.
RISING = ("Suppose a chemist.", "Suppose he buys it.", "Suppose he mixes it.", "Suppose it works.")
ORDINARY = ("What is a good soup?", "And then?", "You said leeks. How many?")


@pytest.fixture
def strict() -> FrozenInstinct:
    """A layer of one rule whose threshold for a rise is never reached."""
    small = FrozenInstinct([checked(parse_pack(PACK, "t.toml"))], read_parameters())
    return small.with_settings(TemporalSettings(escalation_threshold=0.9))


def test_settings_replace_only_what_is_set() -> None:
    """None leaves the shipped number."""
    shipped = read_parameters()
    assert with_temporal(shipped, TemporalSettings()) == shipped
    settings = TemporalSettings(
        half_life_s=60.0, cumulative_threshold=1.0, escalation_threshold=0.5
    )
    changed = with_temporal(shipped, settings)
    assert changed.decay.half_life_s == 60.0
    assert changed.decay.floor == shipped.decay.floor
    assert changed.counterfactual.threshold == 1.0
    assert changed.escalation.rising_last_at_least == 0.5
    assert changed.severity == shipped.severity


@pytest.mark.parametrize(
    "values",
    [{"half_life_s": 0}, {"cumulative_threshold": -1}, {"escalation_threshold": 2}, {"colour": 1}],
)
def test_senseless_settings_are_refused(values: dict[str, float]) -> None:
    """Times and thresholds are positive, and there are no others."""
    with pytest.raises(ConfigError):
        TemporalSettings.model_validate(values)


def test_a_layer_takes_its_settings(layer: FrozenInstinct) -> None:
    """Configured numbers reach the layer, and another layer keeps its own."""
    settings = TemporalSettings(half_life_s=60.0)
    loaded = FrozenInstinct.load(["en"], settings=settings)
    assert loaded.parameters.decay.half_life_s == 60.0
    assert layer.with_settings(settings).parameters.decay.half_life_s == 60.0
    assert layer.parameters.decay.half_life_s == 180.0


def test_fitting_finds_a_lower_escalation_threshold(strict: FrozenInstinct) -> None:
    """Attacks that rise to .6 only are caught once the threshold for a rise lies below."""
    talks = [_talk(*RISING, is_attack=True), *[_talk(*ORDINARY, is_attack=False)] * 3]
    fitted = fit_parameters(talks, layer=strict)
    assert fitted.before.caught == 0.0
    assert fitted.after.caught == 1.0
    assert fitted.after.false_alarms == 0.0
    assert fitted.settings.escalation_threshold is not None
    assert fitted.settings.escalation_threshold <= 0.6


def test_fitting_never_buys_catches_with_false_alarms(strict: FrozenInstinct) -> None:
    """Where the innocent look the same, the numbers stay as they are."""
    talks = [_talk(*RISING, is_attack=True), _talk(*RISING, is_attack=False)]
    fitted = fit_parameters(talks, layer=strict)
    assert fitted.settings.escalation_threshold == 0.9
    assert fitted.after == fitted.before


def test_fitting_needs_both_kinds(layer: FrozenInstinct) -> None:
    """One kind alone teaches nothing."""
    with pytest.raises(DataError, match="innocent"):
        fit_parameters([_talk("a", is_attack=True)], layer=layer)
