"""`promptguard scan`: what it reads, where it writes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from promptguard.cli.scan import scan
from promptguard.errors import ConfigError, InputError

CALM = "What should I cook tonight with leeks and rice?"


def row(name: str | int, text: str = CALM) -> str:
    return json.dumps({"id": name, "messages": [{"role": "user", "content": text}]})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(row, range(3))) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration without the model, for speed."""
    path = tmp_path / "c.yaml"
    path.write_text("conversation: {use_model: false}", encoding="utf-8")
    return path


def run(config: Path, *args: str | Path) -> Result:
    words = [*map(str, args), "--jobs", "1", "--config", str(config)]
    return CliRunner().invoke(scan, words, catch_exceptions=False)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_no_record_is_lost(tmp_path: Path, config: Path) -> None:
    """Good, bad and odd lines each have a line in the output; a failure shows in the exit code."""
    rows = [
        row(1),
        "not json",
        json.dumps({"id": "\ud800", "messages": [{"role": "user", "content": "a\ud800\x00b"}]}),
        json.dumps({"id": "s", "conversations": [{"from": "human", "value": CALM}]}),
    ]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(rows), encoding="utf-8")
    result = run(config, source, "--out", out)
    assert result.exit_code == 1
    assert [line["id"] for line in lines(out)] == [1, None, "\ud800", "s"]
    assert ["error" in line for line in lines(out)] == [False, True, False, False]
    assert "3 judged" in result.output
    assert "1 failed" in result.output


def test_all_judged_is_zero_and_nothing_judged_is_an_error(
    tmp_path: Path, source: Path, config: Path
) -> None:
    """A pipeline notices that it scanned the wrong file."""
    assert run(config, source, "--out", tmp_path / "a.jsonl").exit_code == 0
    prose = tmp_path / "README.md"
    prose.write_text("# Title\n\nNo record.\n", encoding="utf-8")
    assert run(config, prose, "--out", tmp_path / "b.jsonl").exit_code == 3
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    assert run(config, empty, "--out", tmp_path / "c.jsonl").exit_code == 3


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_input_is_never_the_output(
    source: Path, config: Path, tmp_path: Path, force: tuple[str, ...]
) -> None:
    """By the same name or another name of the same file, and even with --force."""
    before = source.read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(source)
    for out in (source, link):
        with pytest.raises(InputError, match="is an input as well"):
            run(config, source, "--out", out, *force)
    assert source.read_bytes() == before


def test_an_existing_output_is_kept(
    tmp_path: Path, source: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only --force replaces it, and not where Ray is missing."""
    out = tmp_path / "out.jsonl"
    out.write_text("precious\n", encoding="utf-8")
    with pytest.raises(InputError, match="exists already"):
        run(config, source, "--out", out)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="ray"):
        run(config, source, "--out", out, "--engine", "ray", "--force")
    assert out.read_text(encoding="utf-8") == "precious\n"
    assert run(config, source, "--out", out, "--force").exit_code == 0
    assert len(lines(out)) == 3


def test_a_folder_s_own_outputs_are_not_read(tmp_path: Path, source: Path, config: Path) -> None:
    """Neither this scan's output nor an earlier one's."""
    (tmp_path / "data").mkdir()
    source.rename(tmp_path / "data" / "in.jsonl")
    folder = tmp_path / "data"
    assert run(config, folder, "--out", folder / "first.jsonl").exit_code == 0
    assert run(config, folder, "--out", folder / "second.jsonl").exit_code == 0
    assert len(lines(folder / "second.jsonl")) == 3


def test_a_dash_writes_to_standard_output(
    tmp_path: Path, source: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines on stdout, counts on stderr, no file named `-`."""
    monkeypatch.chdir(tmp_path)
    words = [str(source), "--out", "-", "--jobs", "1", "--config", str(config)]
    result = CliRunner().invoke(scan, words, catch_exceptions=False)
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [0, 1, 2]
    assert "3 judged" in result.stderr
    assert not (tmp_path / "-").exists()
    with pytest.raises(InputError, match="Standard output"):
        run(config, source, "--out", "-", "--resume")


def test_a_growing_log_is_judged_only_where_it_is_new(
    tmp_path: Path, source: Path, config: Path
) -> None:
    """Run again with --resume: earlier lines stay, the counts say what was new."""
    out = tmp_path / "out.jsonl"
    run(config, source, "--out", out)
    with source.open("a", encoding="utf-8") as log:
        log.write(row(3) + "\n")
    result = run(config, source, "--out", out, "--resume", "--json")
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "resumed": 3, "judged": 1, "flagged": 0, "failed": 0,
    }  # fmt: skip
    assert [line["id"] for line in lines(out)] == [0, 1, 2, 3]
    result = run(config, source, "--out", out, "--resume")
    assert "0 judged now, 4 before; in all 0 flagged, 0 failed." in result.output


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_an_interrupt_ends_at_once_and_keeps_what_was_done(tmp_path: Path, config: Path) -> None:
    """Ctrl-C in a long record ends within a second; the few before it stay, --resume goes on."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    slow = {"role": "user", "content": "word " * 6000}
    rows = [row(n) for n in range(5)]
    rows += [json.dumps({"id": n, "messages": [slow] * 200}) for n in range(100, 140)]
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = [
        sys.executable, "-m", "promptguard", "scan", str(source), "--out", str(out),
        "--jobs", "2", "--config", str(config),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        end = time.monotonic() + 60
        while not (out.exists() and len(out.read_bytes().splitlines()) >= 5):
            assert time.monotonic() < end
            assert process.poll() is None
            os.sched_yield()
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
        took = time.monotonic() - start
    assert process.returncode == 130
    assert "--resume goes on" in said
    assert "Traceback" not in said
    assert [line["id"] for line in lines(out)] == list(range(5))
    assert took < 2
