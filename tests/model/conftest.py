"""The tiny model, written once per test run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import write_model

from promptguard.model.readers import Readers


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    """An encoder on the tiny model."""
    return Readers(write_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tiny model of this test's own."""
    write_model(tmp_path / "model")
    return tmp_path / "model"
