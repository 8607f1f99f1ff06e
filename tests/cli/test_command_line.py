"""The command line as a whole: every command is there, and every end has its exit code."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from promptguard import __version__
from promptguard.cli import (
    EXIT_ALLOW,
    EXIT_CAUTION,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    cli,
    main,
)
from promptguard.errors import ConfigError
from promptguard.service.auth import key_hash

NAMES = cli.list_commands(click.Context(cli))


def all_commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    """Return the words of every command, those of groups included."""
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += all_commands(command, *path, name)
    return found


def exit_code(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["promptguard", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("words", all_commands(cli), ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    """With a sentence of its own, and one for each option."""
    done = CliRunner().invoke(cli, [*words, "--help"])
    assert done.exit_code == 0
    command: click.Command = cli
    for name in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    assert command.help
    silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_a_test_of_its_own(name: str) -> None:
    """Some test of this folder runs it."""
    folder = Path(__file__).parent
    others = [path for path in folder.glob("test_*.py") if path.name != Path(__file__).name]
    texts = [path.read_text("utf-8") for path in others]
    assert any(f'"{name}"' in text or f"import {name}\n" in text for text in texts)


def test_the_version_is_the_package_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that was also built has two entries among the installed packages, or none."""
    twice = {"promptguard": ["ayniguard", "ayniguard"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: twice)
    done = CliRunner().invoke(cli, ["--version"])
    assert (done.exit_code, done.output) == (0, f"promptguard, version {__version__}\n")


def test_an_unknown_command_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of errors, not with one that means a verdict."""
    assert exit_code(monkeypatch, "chek") == EXIT_ERROR
    assert "No such command" in capsys.readouterr().err


def test_our_own_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No traceback, on stderr."""
    missing = str(tmp_path / "none.yaml")
    assert exit_code(monkeypatch, "keys", "list", "--config", missing) == EXIT_ERROR
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Error: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (click.exceptions.Exit(EXIT_CAUTION), EXIT_CAUTION),
        (click.exceptions.Abort(), EXIT_INTERRUPTED),
        (ConfigError("x"), EXIT_ERROR),
        (SystemExit(1), EXIT_ERROR),
        (SystemExit(0), EXIT_ALLOW),
        (OSError(28, "No space left on device"), EXIT_ERROR),
        (ZeroDivisionError(), EXIT_ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_end_has_its_code(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    """A reader that went away is an error, never caution, and so is a fault of ours."""

    def end(**_: object) -> None:
        raise raised

    monkeypatch.setattr(cli, "main", end)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert exit_code(monkeypatch) == code


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Who gave a name that no file can have is told which, and not that a disk is full."""
    name = str(tmp_path / ("a" * 300))
    assert exit_code(monkeypatch, "scan", name, "--out", "-") == EXIT_ERROR
    assert capsys.readouterr().err == f"Error: {name} cannot be used: File name too long.\n"


def test_half_a_surrogate_pair_is_printed_as_json_escapes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stored messages may hold one, and no encoding can write it."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    text = "é \ud800"
    monkeypatch.setattr(cli, "main", lambda **_: click.echo(json.dumps(text, ensure_ascii=False)))
    assert exit_code(monkeypatch) == EXIT_ALLOW
    assert json.loads(raw.getvalue()) == text


def test_a_line_in_another_encoding_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said to `chat` may be pasted from anywhere."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8"))
    read: list[str] = []
    monkeypatch.setattr(cli, "main", lambda **_: read.append(input()))
    assert exit_code(monkeypatch) == EXIT_ALLOW
    assert read == ["caf\ufffd"]


def test_a_command_that_returns_no_code_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most return nothing."""
    monkeypatch.setattr(cli, "main", lambda **_: None)
    assert exit_code(monkeypatch) == EXIT_ALLOW


def test_a_new_key_for_programs_is_json() -> None:
    """The key, and the entry for the configuration, which holds its hash alone."""
    words = ["keys", "new", "--name", "bot", "--scope", "guard", "--tenant", "t", "--json"]
    body = json.loads(CliRunner().invoke(cli, words).stdout)
    assert body["entry"]["sha256"] == key_hash(body["key"])
    assert (body["entry"]["name"], body["entry"]["tenant"]) == ("bot", "t")
    assert body["key"] not in json.dumps(body["entry"])


def test_keys_are_listed_for_programs_without_their_hashes(tmp_path: Path) -> None:
    """A list of keys may be shown around."""
    path = tmp_path / "config.yaml"
    entry = f"{{name: bot, sha256: {key_hash('pg_x')}, scopes: [guard]}}"
    path.write_text(f"service:\n  keys:\n    - {entry}\n", encoding="utf-8")
    words = ["keys", "list", "--config", str(path), "--json"]
    (key,) = json.loads(CliRunner().invoke(cli, words).stdout)
    assert key["name"] == "bot"
    assert "sha256" not in key
