"""What the distribution says of itself."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SHOWN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]


def test_the_metadata_are_complete() -> None:
    """Name, licence, authors, Python versions; a licence is an expression, not a classifier."""
    assert PROJECT["name"] == "ayniguard"
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["authors"] == [{"name": "promptguard contributors"}]
    assert PROJECT["requires-python"] == ">=3.11"
    assert PROJECT["readme"] == "README.md"
    classifiers = PROJECT["classifiers"]
    assert classifiers == sorted(classifiers)
    assert "Programming Language :: Python :: 3.11" in classifiers
    assert "Typing :: Typed" in classifiers
    assert not any(text.startswith("License ::") for text in classifiers)


def test_hints_install_this_distribution() -> None:
    """The index has another project under the import's name."""
    for path in SHOWN:
        text = path.read_text("utf-8")
        assert not re.search(r"pip install ['\"]?promptguard\b", text), path
        for extra in re.findall(r"ayniguard\[([a-z-]+)\]", text):
            assert extra in PROJECT["optional-dependencies"], f"{path}: {extra}"
