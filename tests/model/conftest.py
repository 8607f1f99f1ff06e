"""The tiny model, written once per test run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import write_model

from promptguard.model.encoder import LocalEncoder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> LocalEncoder:
    """An encoder on the tiny model."""
    return LocalEncoder(write_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tiny model of this test's own."""
    write_model(tmp_path / "model")
    return tmp_path / "model"
