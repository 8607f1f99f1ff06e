"""What `import promptguard` offers, and that it does nothing else."""

import subprocess
import sys

import pytest

import promptguard


def test_importing_loads_nothing_else() -> None:
    """No model, no pydantic, no network library; names come when they are used."""
    code = (
        "import sys, promptguard; dir(promptguard);"
        "print([m for m in sys.modules if m.startswith('promptguard.') or m in "
        "('pydantic', 'httpx', 'numpy', 'onnxruntime', 'asyncio')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", promptguard.__all__)
def test_every_public_name_can_be_loaded(name: str) -> None:
    """And is found by dir()."""
    assert getattr(promptguard, name) is not None
    assert name in dir(promptguard)


def test_all_is_sorted_and_complete() -> None:
    """The list and the table of homes are the same."""
    assert promptguard.__all__ == sorted([*promptguard._HOMES, "__version__"])


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        promptguard.no_such_name  # noqa: B018
