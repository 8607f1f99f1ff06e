"""`promptguard doctor`: what works, what does not, and what to do."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted_judges import LocalLikeJudge, ScriptedProvider

from promptguard.cli import cli
from promptguard.errors import ProviderTimeout


def doctor(tmp_path: Path, settings: str, *arguments: str):
    path = tmp_path / "promptguard.yaml"
    path.write_text(settings)
    return CliRunner().invoke(cli, ["doctor", "--config", str(path), *arguments])


@pytest.fixture(autouse=True)
def embedded(monkeypatch):
    """An embedded judge that answers at once."""
    monkeypatch.setattr(
        "promptguard.evaluation.named_judge",
        lambda model, config: LocalLikeJudge() if model == "local" else None,
    )


def test_all_is_well(tmp_path: Path) -> None:
    """Configuration, model, cache and store, one line each."""
    done = doctor(
        tmp_path,
        f"evaluation:\n  cache: {{path: {tmp_path}/cache.db}}\n"
        f"conversation:\n  store: sqlite:{tmp_path}/new/sessions.db\n",
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split(":")[0].split()[-1] for line in lines] == [
        "configuration",
        "model",
        "cache",
        "store",
        "upstream",
    ]
    assert not (tmp_path / "new").exists()


def test_a_broken_configuration_is_said_and_nothing_else_tried(tmp_path: Path) -> None:
    """The message says which setting."""
    done = doctor(tmp_path, "evaluation: {mode: sideways}")
    assert done.exit_code == 3
    assert done.output.startswith("broken  configuration: Configuration: ")
    assert "mode" in done.output


def test_unknown_names_in_the_settings_are_found(tmp_path: Path) -> None:
    """Before the first prompt is judged, in the conversation's judge as well."""
    done = doctor(
        tmp_path,
        "conversation:\n  store: 'memory:'\n  evaluation: {evaluation_type: astrology}\n",
    )
    assert done.exit_code == 3
    assert "astrology" in done.output
    assert "ok      store" in done.output


@pytest.mark.skipif(os.name == "nt", reason="POSIX paths")
def test_places_that_cannot_be_written_are_found(tmp_path: Path) -> None:
    """A folder in the file's place, and a file in the folder's place."""
    (tmp_path / "file").write_text("")
    done = doctor(
        tmp_path,
        f"evaluation:\n  cache: {{path: {tmp_path}/file/cache.db}}\n"
        f"conversation:\n  store: sqlite:{tmp_path}\n",
    )
    assert done.exit_code == 3
    assert done.output.count("broken") == 2


def test_a_corrupt_cache_is_told(tmp_path: Path) -> None:
    """It is begun anew, so the next time all is well."""
    (tmp_path / "cache.db").write_bytes(b"not a database" * 500)
    settings = (
        f"evaluation:\n  cache: {{path: {tmp_path}/cache.db}}\nconversation:\n  store: 'memory:'\n"
    )
    assert doctor(tmp_path, settings).exit_code == 3
    assert doctor(tmp_path, settings).exit_code == 0


ENDPOINTS = (
    "evaluation: {models: [local, ollama/llama3.2], mode: cascade}\n"
    "conversation: {store: 'memory:', model: openai/gpt-4o}\n"
)


def test_endpoints_are_called_only_on_request(tmp_path: Path, monkeypatch) -> None:
    """Each once, and closed again; one that fails is told."""
    opened = {}

    def open_provider(model, endpoint):
        replies = ["ok"] if model.startswith("ollama") else [ProviderTimeout("no answer in 30 s")]
        opened[model] = ScriptedProvider(replies)
        return opened[model]

    monkeypatch.setattr("promptguard.providers.open_provider", open_provider, raising=False)
    assert doctor(tmp_path, ENDPOINTS).exit_code == 0
    assert not opened
    done = doctor(tmp_path, ENDPOINTS, "--endpoints")
    assert done.exit_code == 3
    assert "ok      ollama/llama3.2: answers" in done.output
    assert "broken  openai/gpt-4o: no answer" in done.output
    assert all(provider.is_closed for provider in opened.values())


def test_a_database_is_called_only_on_request(tmp_path: Path, monkeypatch) -> None:
    """A server may be far away."""
    from promptguard.stores.memory import MemoryStore

    monkeypatch.setattr("promptguard.stores.open_store", lambda url: MemoryStore())
    settings = "conversation: {store: 'postgresql://db.example/guard'}"
    assert "not called" in doctor(tmp_path, settings).output
    assert "store connection: answers" in doctor(tmp_path, settings, "--endpoints").output
