"""The numbers are data, complete and checked."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from promptguard.errors import ConfigError, DataError
from promptguard.fil.parameters import read_parameters

SHIPPED = files("promptguard").joinpath("data/fil.toml").read_text(encoding="utf-8")


def test_the_shipped_numbers_are_those_of_the_design() -> None:
    """Severities, half-life and thresholds as documented."""
    parameters = read_parameters()
    assert parameters.severity["FIL-01b"] == 2.5
    assert parameters.severity["FIL-02a"] == 2.0
    assert parameters.decay.half_life_s == 180.0
    assert parameters.base.block_at == 0.70
    assert parameters.hard_directives == {"FIL-01b", "FIL-01c", "FIL-02a"}
    assert parameters.version == 1
    assert parameters.provenance


@pytest.mark.parametrize(
    ("persona", "directive", "weight"),
    [
        ("strict", "FIL-05a", 1.0),
        ("strict", "FIL-01", 0.9),
        ("strict", "FIL-01a", 0.5),
        ("empathetic", "FIL-02a", 1.0),
        ("empathetic", "FIL-04", 0.95),
        ("educational", "FIL-01c", 1.0),
        ("professional", "FIL-03", 0.95),
        ("friendly", "FIL-02", 0.85),
        ("friendly", "FIL-05", 0.5),
    ],
)
def test_personas_weigh_directives(persona: str, directive: str, weight: float) -> None:
    """What a persona names weighs more, the rest one half."""
    assert read_parameters().persona_weight(persona, directive) == weight


def test_an_unknown_persona_is_a_configuration_error() -> None:
    """The message lists the known ones."""
    with pytest.raises(ConfigError, match="strict"):
        read_parameters().persona_weight("villain", "FIL-01")


@pytest.mark.parametrize(
    ("found", "written"),
    [
        ("FIL-03 = 2.5\n", ""),
        ("half_life_s = 180.0", "half_life_s = 0.0"),
        ("floor = 0.1", "floor = 0.0"),
        ("[decay]", "[fading]"),
        ('directives = ["FIL-01b"', 'directives = ["FIL-77"'),
        ("version = 1", "version = "),
        ("step = 0.2", "stride = 0.2"),
        ("dan = 0.8\n", ""),
        ("FIL-03 = 2.5", 'FIL-03 = "high"'),
        ("[persona.strict]", "[persona]\nstrict = 1\n[other]"),
    ],
)
def test_broken_numbers_are_a_data_error(tmp_path: Path, found: str, written: str) -> None:
    """A missing, unknown or impossible number is reported, never guessed."""
    path = tmp_path / "fil.toml"
    path.write_text(SHIPPED.replace(found, written, 1), encoding="utf-8")
    with pytest.raises(DataError):
        read_parameters(path)


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_a_data_error(tmp_path: Path, content: bytes | None) -> None:
    """Missing, or no UTF-8."""
    path = tmp_path / "fil.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match="Cannot read"):
        read_parameters(path)


def test_tuned_numbers_can_replace_the_shipped_ones(tmp_path: Path) -> None:
    """A file of the same form is used instead."""
    path = tmp_path / "fil.toml"
    path.write_text(SHIPPED.replace("half_life_s = 180.0", "half_life_s = 60.0"), encoding="utf-8")
    assert read_parameters(path).decay.half_life_s == 60.0
