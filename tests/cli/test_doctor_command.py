"""`promptguard doctor`: what works, what does not, and what to do."""

import asyncio
import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted_judges import LocalLikeJudge, ScriptedProvider

from promptguard.cli import cli
from promptguard.errors import ProviderTimeout
from promptguard.model.artifact import bundled
from promptguard.state import SessionState
from promptguard.stores import open_store


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
        f"evaluation:\n  cache: {{path: {tmp_path}/made/cache.db}}\n"
        f"conversation:\n  store: sqlite:{tmp_path}/sessions.db\n",
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split(":")[0].split()[-1] for line in lines] == [
        "configuration",
        "files",
        "model",
        "cache",
        "store",
        "upstream",
    ]
    assert not (tmp_path / "sessions.db").exists()


def test_a_path_that_cannot_be_looked_at_is_a_finding(tmp_path: Path) -> None:
    """It ends no examination of what comes after it."""
    name = tmp_path / ("a" * 300)
    done = doctor(
        tmp_path, f"conversation: {{store: 'memory:'}}\nservice: {{audit_file: {name}}}\n"
    )
    assert f"broken  audit: {name} cannot be used: File name too long" in done.output
    assert "upstream" in done.output


@pytest.mark.parametrize(
    ("setting", "said"),
    [("weights: none.toml", "none.toml"), ("rules: [none.toml]", "none.toml")],
)
def test_a_file_that_the_guard_could_not_open_is_named(
    tmp_path: Path, setting: str, said: str
) -> None:
    """What would keep the service from starting is found before it is started."""
    done = doctor(tmp_path, f"conversation: {{{setting}, store: 'memory:'}}")
    assert done.exit_code == 3
    assert done.output.startswith("broken  configuration: ")
    assert said in done.output.splitlines()[0]


def test_a_broken_configuration_is_said_and_nothing_else_tried(tmp_path: Path) -> None:
    """The message says which setting."""
    done = doctor(tmp_path, "evaluation: {mode: sideways}")
    assert done.exit_code == 3
    assert done.output.startswith("broken  configuration: ")
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


def test_a_missing_folder_is_found(tmp_path: Path) -> None:
    """The service makes none for its store and its audit file, so it would not start."""
    done = doctor(
        tmp_path,
        f"conversation: {{store: 'sqlite:{tmp_path}/new/sessions.db'}}\n"
        f"service: {{audit_file: '{tmp_path}/new/audit.jsonl'}}\n",
    )
    assert done.exit_code == 3
    broken = [line for line in done.output.splitlines() if line.startswith("broken")]
    assert len(broken) == 2
    assert all(f"{tmp_path}/new does not exist; make it" in line for line in broken)
    assert not (tmp_path / "new").exists()


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
    assert (
        "store connection: answers and can be written"
        in doctor(tmp_path, settings, "--endpoints").output
    )


def test_a_damaged_store_is_found_and_not_changed(tmp_path: Path) -> None:
    """No database at all, and a database with a page overwritten in the middle."""
    whole = tmp_path / "sessions.db"
    asyncio.run(filled(whole))
    for name, content in {
        "garbage.db": b"not a database" * 500,
        "torn.db": whole.read_bytes()[:8192] + b"\xff" * 16384 + whole.read_bytes()[24576:],
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        done = doctor(tmp_path, f"conversation: {{store: 'sqlite:{path}'}}")
        assert done.exit_code == 3, name
        assert f"broken  store: {path}" in done.output
        assert path.read_bytes() == content
    assert doctor(tmp_path, f"conversation: {{store: 'sqlite:{whole}'}}").exit_code == 0


async def filled(path: Path) -> None:
    store = open_store(f"sqlite:{path}")
    for number in range(200):
        state = SessionState(session_id=f"s{number}" * 20, version=1)
        await store.save(state, expected_version=0)
    await store.close()


def test_a_model_file_that_is_not_the_published_one_is_found(tmp_path: Path, monkeypatch) -> None:
    """By its hash, before anything is judged with it."""
    shipped = bundled()
    for file in shipped.folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").write_text("{}")
    other = replace(shipped, folder=tmp_path)
    monkeypatch.setattr("promptguard.model.artifact.bundled", lambda: other)
    done = doctor(tmp_path, "conversation: {store: 'memory:'}")
    assert done.exit_code == 3
    assert "broken  model files: tokenizer.json" in done.output


def test_webhooks_without_the_service_s_extra_are_a_finding(tmp_path: Path, monkeypatch) -> None:
    """It names what to install, and what comes after it is examined."""
    monkeypatch.delitem(sys.modules, "promptguard.service.webhooks", raising=False)
    monkeypatch.delitem(sys.modules, "promptguard.service.auth", raising=False)
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = doctor(
        tmp_path,
        "conversation: {store: 'memory:'}\n"
        "service: {webhooks: [{url: 'https://hooks.example/', secret_env: HOOK}]}\n",
    )
    assert "broken  webhooks: The service needs the extra `service`" in done.output
    assert "upstream" in done.output


def test_a_store_under_the_name_of_nobody_is_examined(tmp_path: Path) -> None:
    """As the store reads it: a folder with a tilde, which is not there."""
    done = doctor(tmp_path, "conversation: {store: 'sqlite:~nobody-here/s.db'}")
    assert "~nobody-here does not exist; make it" in done.output


def test_what_the_service_needs_is_looked_at(tmp_path: Path) -> None:
    """A key that anybody guesses, an audit file in no folder, a webhook without its secret."""
    weak = hashlib.sha256(b"changeme").hexdigest()
    strong = hashlib.sha256(b"pg_" + b"x7" * 20).hexdigest()
    (tmp_path / "file").write_text("")
    done = doctor(
        tmp_path,
        "conversation: {store: 'memory:'}\n"
        "service:\n"
        f"  keys: [{{name: weak, sha256: {weak}}}, {{name: strong, sha256: {strong}}}]\n"
        f"  audit_file: {tmp_path}/file/audit.jsonl\n"
        "  webhooks: [{url: 'https://hooks.example/', secret_env: NO_SUCH_SECRET}]\n",
    )
    assert done.exit_code == 3
    assert "broken  keys: Anybody can guess the key of weak;" in done.output
    assert "broken  audit:" in done.output
    assert "NO_SUCH_SECRET" in done.output
