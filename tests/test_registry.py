"""Parts are found by name, also those of installed packages; broken ones are named."""

from pathlib import Path

import pytest

from promptguard.errors import ConfigError
from promptguard.registry import Registry


def install(folder: Path, name: str, target: str) -> None:
    """Lay a package with one entry point into `folder`."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[promptguard.test_part]\nextra = {target}\n")


def test_parts_of_installed_packages_are_found(tmp_path, monkeypatch) -> None:
    """At the first look-up, under the name of the entry point."""
    install(tmp_path, "kind-plugin", "string:ascii_letters")
    monkeypatch.syspath_prepend(tmp_path)
    parts: Registry[str] = Registry("test part")
    assert parts.get("extra").startswith("abc")
    assert "extra" in parts


def test_a_package_that_cannot_be_loaded_is_named(tmp_path, monkeypatch) -> None:
    """Each time it is needed, not only the first."""
    install(tmp_path, "broken-plugin", "no_such_module:part")
    monkeypatch.syspath_prepend(tmp_path)
    parts: Registry[str] = Registry("test part")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"'extra' of broken-plugin cannot be loaded"):
            parts.get("anything")


def test_an_unknown_name_lists_the_known_ones() -> None:
    """And a name that is taken is refused."""
    parts: Registry[str] = Registry("test part")
    parts.register("one")("1")
    with pytest.raises(ConfigError, match="known: one"):
        parts.get("two")
    with pytest.raises(ConfigError, match="registered twice"):
        parts.register("one")("1")
