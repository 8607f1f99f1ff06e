"""The model card says what was measured, and of the model that ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from promptguard.model.artifact import bundled

ROOT = Path(__file__).parents[2]
MEASURED = json.loads((ROOT / "benchmarks" / "model.json").read_text(encoding="utf-8"))
CARD = (ROOT / "docs" / "model-card.md").read_text(encoding="utf-8")


def test_the_numbers_are_of_the_shipped_model() -> None:
    """A new model needs new numbers."""
    manifest = bundled().manifest
    assert MEASURED["model"] == manifest.identity
    assert f"{manifest.name} {manifest.version}" in CARD


@pytest.mark.parametrize(
    "table", ["single texts", "kinds", "promptguard_680", "languages", "conversations"]
)
def test_the_card_quotes_what_was_measured(table: str) -> None:
    """Each line of a table stands in the card with its first measured value."""
    rows = [row for row in MEASURED["rows"] if row["table"] == table]
    assert rows
    lines = CARD.splitlines()
    for row in rows:
        value = next(v["value"] for v in row["values"].values() if v["value"] is not None)
        own = [line for line in lines if line.startswith(f"| {row['name']} |")]
        assert any(f"{value:.3f}" in line for line in own), row["name"]
