"""What is put into the package when it is built."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

from promptguard.service.manual import Manual, the_manual

ROOT = Path(__file__).parents[2]


def test_the_package_is_built_with_the_manual(tmp_path, monkeypatch) -> None:
    """Every page that a checkout shows, and the pictures on them."""
    made: list[type[build_py]] = []
    monkeypatch.setattr("setuptools.setup", lambda cmdclass: made.append(cmdclass["build_py"]))
    exec(compile((ROOT / "setup.py").read_text(), str(ROOT / "setup.py"), "exec"), {**SCOPE})
    made[0](Distribution()).copy_manual(tmp_path)
    built = Manual(tmp_path, tmp_path / "mkdocs.yml")
    assert built.groups == the_manual().groups
    assert built.image("images/manual-light.png").read_bytes()


def test_a_source_archive_holds_the_pages() -> None:
    """A package is built from it as from a checkout."""
    lines = (ROOT / "MANIFEST.in").read_text().split("\n")
    assert "include mkdocs.yml" in lines
    assert "recursive-include docs *.md *.png" in lines


SCOPE = {"__file__": str(ROOT / "setup.py"), "__name__": "setup"}
