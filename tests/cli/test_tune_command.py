"""`promptguard tune`: weights are written only where they are better."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from labelled_records import data, rules_config, run

from promptguard.cli.tune import tune
from promptguard.errors import DataError, InputError, StoreError
from promptguard.protocols import SessionQuery
from promptguard.stores import open_store


@pytest.fixture
def config(tmp_path: Path) -> str:
    return rules_config(tmp_path)


def test_tune_keeps_the_present_weights_where_nothing_is_better(
    tmp_path: Path, config: str
) -> None:
    """Attacks that rank perfectly already cannot rank better: exit code 1, no file."""
    out = tmp_path / "w.toml"
    result = run(tune, data(tmp_path, 120), "--config", config, "--out", str(out), "--folds", "2")
    assert result.exit_code == 1
    assert "Refused" in result.output
    assert not out.exists()


def test_tune_needs_something_to_learn_from(tmp_path: Path) -> None:
    """Data, or a store with labels."""
    with pytest.raises(InputError, match="labelled data"):
        run(tune)
    empty = f"sqlite:{tmp_path / 'empty.db'}"
    with pytest.raises(StoreError, match=r"empty\.db"):
        run(tune, "--store", empty)
    asyncio.run(made(empty))
    with pytest.raises(DataError, match="at least 50"):
        run(tune, "--store", empty)


def test_temporal_numbers_are_fitted_on_request(tmp_path: Path, config: str) -> None:
    """What the rules reach with them is said beside what they reach now."""
    words = (data(tmp_path, 120), "--config", config, "--out", str(tmp_path / "w.toml"))
    more = ("--folds", "2", "--json")
    assert "temporal" not in json.loads(run(tune, *words, *more).stdout)
    found = json.loads(run(tune, *words, *more, "--temporal").stdout)["temporal"]
    assert set(found["settings"]) == {
        "half_life_s",
        "cumulative_threshold",
        "escalation_threshold",
    }
    assert found["after"]["caught"] >= found["before"]["caught"]
    assert "rules, fitted" in run(tune, *words, "--folds", "2", "--temporal").output


async def made(url: str) -> None:
    """Make a store in which nothing is."""
    store = open_store(url)
    await store.sessions(SessionQuery())
    await store.close()


def test_json_says_what_was_decided(tmp_path: Path, config: str) -> None:
    """Both measurements, and no file where the new weights are refused."""
    out = tmp_path / "w.toml"
    result = run(
        tune, data(tmp_path, 120), "--config", config, "--out", str(out), "--folds", "2", "--json"
    )
    body = json.loads(result.stdout)
    assert (body["is_better"], body["weights"]) == (False, None)
    assert set(body["present"]) == {"auc", "recall_at_1", "recall_at_5"}
