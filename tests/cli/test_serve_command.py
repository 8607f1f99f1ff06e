"""`promptguard serve` and `promptguard keys`: a server that says where it is, keys shown once."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys

import click
import httpx
import pytest
import yaml
from click.testing import CliRunner

from promptguard.cli import cli
from promptguard.cli.serve import _announce
from promptguard.cli.service_checks import listen, service_extra
from promptguard.config import KeyConfig, ServiceConfig
from promptguard.errors import ConfigError, StoreError


def test_a_new_key_is_shown_once_and_its_hash_fits_the_configuration() -> None:
    """What is printed can be pasted."""
    arguments = ["keys", "new", "--name", "on", "--scope", "guard", "--scope", "read"]
    done = CliRunner().invoke(cli, [*arguments, "--tenant", "7"])
    assert done.exit_code == 0, done.output
    key = done.stdout.strip()
    assert key.startswith("pg_")
    pasted = yaml.safe_load(done.stderr[done.stderr.index("service:") :])
    entry = KeyConfig(**pasted["service"]["keys"][0])
    assert (entry.name, entry.scopes, entry.tenant) == ("on", ("guard", "read"), "7")
    from promptguard.service.auth import key_hash

    assert entry.sha256 == key_hash(key)
    assert key not in done.stderr


def test_a_key_with_an_impossible_name_is_refused() -> None:
    """Before a key is made."""
    done = CliRunner().invoke(cli, ["keys", "new", "--name", "a:b"])
    assert isinstance(done.exception, ConfigError)
    assert "pg_" not in done.output


def test_configured_keys_are_listed_without_their_hashes(tmp_path) -> None:
    """Names, tenants, scopes, rates."""
    path = tmp_path / "guard.yaml"
    path.write_text(f"service: {{keys: [{{name: app, sha256: {'ab' * 32}}}]}}")
    done = CliRunner().invoke(cli, ["keys", "list", "--config", str(path)])
    assert done.output == "app\tdefault\tguard\t600/min\n"
    assert "No keys" in CliRunner().invoke(cli, ["keys", "list"]).output


@pytest.mark.parametrize(
    ("upstream", "shown"),
    [
        ("http://user:hunter2@model:8080/v1", "http://model:8080/v1"),
        ("https://model/v1?key=hunter2", "https://model/v1"),
        ("http://a@b:hunter2@model/v1", "http://model/v1"),
        ("ollama", "ollama"),
    ],
)
def test_the_banner_shows_no_password_of_the_upstream(upstream, shown, capsys) -> None:
    """It is copied into logs and chats."""
    _announce(ServiceConfig(upstream=upstream), 8787)
    printed = capsys.readouterr().out
    assert f"(forwards to {shown})" in printed
    assert "hunter2" not in printed


def test_a_missing_package_names_the_extra() -> None:
    """And other import errors stay what they are."""

    def missing(name: str) -> None:
        with service_extra():
            raise ImportError("no", name=name)

    with pytest.raises(ConfigError, match=r"ayniguard\[service\]"):
        missing("fastapi.routing")
    with pytest.raises(ImportError):
        missing("promptguard.nothing")


def test_serving_the_world_without_keys_is_refused() -> None:
    """With what to do about it."""
    done = CliRunner().invoke(cli, ["serve", "--host", "0.0.0.0", "--store", "memory:"])
    assert isinstance(done.exception, ConfigError)
    assert "promptguard keys new" in str(done.exception)


def test_a_store_that_cannot_be_written_stops_the_start(tmp_path) -> None:
    """At once, with its path, before the model is loaded."""
    place = tmp_path / "missing" / "guard.db"
    done = CliRunner().invoke(cli, ["serve", "--store", f"sqlite:{place}", "--port", "0"])
    assert isinstance(done.exception, StoreError)
    assert str(place) in str(done.exception)
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database at all" * 100)
    done = CliRunner().invoke(cli, ["serve", "--store", f"sqlite:{broken}", "--port", "0"])
    assert isinstance(done.exception, StoreError)
    assert str(broken) in str(done.exception)


@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["sessions", "list"], ["doctor"]])
def test_a_folder_given_as_the_store_is_said_to_be_one(
    tmp_path, monkeypatch, words: list[str]
) -> None:
    """And that a file in it is wanted."""
    monkeypatch.setenv("PROMPTGUARD_CONVERSATION__STORE", f"sqlite:{tmp_path}")
    done = CliRunner().invoke(cli, words)
    assert done.exit_code
    assert f"{tmp_path} is a folder; name the file in it" in f"{done.output}{done.exception}"


def test_a_busy_port_is_one_line_and_an_exit_code(tmp_path) -> None:
    """No traceback, no log, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "promptguard", "serve", "--store", "memory:", "--port", port],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert port in line
    assert "--port" in line


@pytest.mark.parametrize("host", ["192.0.2.1", "no host"])
def test_an_address_of_another_machine_is_told_so(host: str) -> None:
    """Another port would not help."""
    with pytest.raises(ConfigError, match="--host an address of this machine"):
        listen(host, 0)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_banner_s_address_can_be_opened(host: str, capsys) -> None:
    """A host may be given in brackets, as in an address."""
    _announce(ServiceConfig(host=host), 8787)
    assert "listens on http://[::1]:8787\n" in capsys.readouterr().out


def test_the_banner_says_where_the_command_lives(capsys) -> None:
    """Whoever started it by `make run` need not look for it."""
    _announce(ServiceConfig(), 8787)
    printed = capsys.readouterr().out
    command = re.search(r"command +(\S.*)", printed)[1]
    done = subprocess.run(
        [*shlex.split(command), "--version"], capture_output=True, text=True, check=True
    )
    assert "version" in done.stdout


def test_the_server_starts_answers_reloads_and_ends(tmp_path) -> None:
    """The curl line it prints works; SIGHUP reloads, SIGTERM ends it in order."""
    config = tmp_path / "guard.yaml"
    store = tmp_path / "guard.db"
    text = (
        f"conversation: {{store: 'sqlite:{store}', use_model: false, policy: {{block_from: X}}}}\n"
        "service: {port: 0, dashboard: false, demo: false}\n"
    )
    config.write_text(text.replace("X", "CRITICAL"))
    process = subprocess.Popen(
        [sys.executable, "-m", "promptguard", "serve", "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        said = _read_until(process, "try it")
        url = re.search(r"listens on (\S+)", said)[1]
        curl = shlex.split(next(line for line in said.splitlines() if "curl" in line))
        body = curl[curl.index("-d") + 1]
        assert f"{url}/v1/guard/turn" in curl
        reply = httpx.post(
            f"{url}/v1/guard/turn", content=body, headers={"content-type": "application/json"}
        )
        assert reply.status_code == 200, reply.text
        config.write_text(text.replace("X", "SIDEWAYS"))
        process.send_signal(signal.SIGHUP)
        said += _read_until(process, '"reload refused"')
        config.write_text(text.replace("X", "SAFE"))
        process.send_signal(signal.SIGHUP)
        said += _read_until(process, '"reloaded"')
        assert httpx.post(f"{url}/v1/guard/turn", json={"user_input": "hi"}).json()["is_blocked"]
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=20)
    assert process.returncode in (0, -signal.SIGTERM)
    logged = [line for line in (said + rest).splitlines() if line.startswith("{")]
    assert any('"event": "stopped"' in line for line in logged)
    assert not any("Ignore all" in line for line in logged)


def _read_until(process: subprocess.Popen, word: str) -> str:
    said = ""
    while word not in said:
        line = process.stdout.readline()
        assert line, "the server ended"
        said += line
    return said


def test_the_commands_have_help() -> None:
    """Each option says what it does."""
    for command in (["serve"], ["keys", "new"], ["keys", "list"]):
        done = CliRunner().invoke(cli, [*command, "--help"])
        assert done.exit_code == 0
        assert "Options:" in click.unstyle(done.output)
