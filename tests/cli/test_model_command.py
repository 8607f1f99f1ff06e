"""`promptguard model`: what it tells of a model, and how it ends where one is damaged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tiny_model import write_model

from promptguard.cli import cli
from promptguard.cli import model as model_command
from promptguard.errors import DataError, ModelError
from promptguard.model.artifact import open_artifact
from promptguard.runs.intervals import Measure
from promptguard.runs.report import Headline, Manifest, Report, Summary, report_to_json


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model, and probes in the few words it knows."""
    monkeypatch.setattr(model_command, "INNOCENT", ("bread", "water"))
    monkeypatch.setattr(model_command, "ATTACKS", ("harm", "trick bread"))
    write_model(tmp_path / "model")
    return tmp_path / "model"


def run(command: str, folder: Path) -> Result:
    return CliRunner().invoke(cli, ["model", command, "--folder", str(folder)])


def test_info_shows_manifest_size_and_calibration(folder: Path) -> None:
    """Everything that identifies the model, and its thresholds."""
    done = run("info", folder)
    assert done.exit_code == 0
    for expected in ("tiny 1, Apache-2.0", "quick.onnx: 0.0 MiB", "manipulative", "0.800"):
        assert expected in done.output
    assert "No measured quality" in done.output


def measured(model: str) -> str:
    number = Headline(
        key="auc", label="AUC", measure=Measure(value=0.9, low=0.88, high=0.92), unit=""
    )
    summary = Summary(name="engine", judged=1200, failed=0, headline=(number,))
    manifest = Manifest(model=model)
    return report_to_json(Report(created=1.0, cases=1200, manifest=manifest, contenders=(summary,)))


def test_info_shows_measured_numbers_with_their_intervals(folder: Path) -> None:
    """And says so where they were measured with another model."""
    own = open_artifact(folder).manifest.identity
    (folder / "measured.json").write_text(measured(own))
    output = run("info", folder).output
    assert "measured on 1,200 test cases; " in output
    assert "0.900 (0.880 to 0.920)" in output
    (folder / "measured.json").write_text(measured("tiny 0 ffff"))
    assert "with another model (tiny 0 ffff)" in run("info", folder).output


def test_json_tells_the_same(folder: Path) -> None:
    """Manifest and measurements for programs, and the outcome of a check."""
    (folder / "measured.json").write_text(measured("tiny"))
    words = ["--folder", str(folder), "--json"]
    info = json.loads(CliRunner().invoke(cli, ["model", "info", *words]).stdout)
    assert info["manifest"]["name"] == "tiny"
    assert info["measured"]["cases"] == 1200
    sound = CliRunner().invoke(cli, ["model", "verify", *words])
    assert json.loads(sound.stdout)["is_sound"]
    (folder / "tokenizer.json").unlink()
    damaged = CliRunner().invoke(cli, ["model", "verify", *words])
    assert damaged.exit_code == 1
    assert "tokenizer.json" in json.loads(damaged.stdout)["damage"]


def test_broken_measurements_are_an_error(folder: Path) -> None:
    """They are not shown by half."""
    (folder / "measured.json").write_text("{}")
    assert isinstance(run("info", folder).exception, DataError)


def test_info_without_a_model_says_what_to_do(tmp_path: Path) -> None:
    """One of our own errors."""
    done = run("info", tmp_path)
    assert isinstance(done.exception, ModelError)


def test_verify_passes_a_sound_model(folder: Path) -> None:
    """Hashes, loading, probes."""
    done = run("verify", folder)
    assert done.exit_code == 0, done.output
    assert done.output.count("ok ") == 4


@pytest.mark.parametrize(
    "name", ["quick.onnx", "thorough.onnx", "tokenizer.json", "word_pairs.npz", "manifest.json"]
)
def test_verify_ends_with_one_where_a_file_is_damaged(folder: Path, name: str) -> None:
    """Cut short, then missing."""
    body = (folder / name).read_bytes()
    (folder / name).write_bytes(body[:-5])
    done = run("verify", folder)
    assert done.exit_code == 1
    assert "damaged" in done.output
    (folder / name).unlink()
    assert run("verify", folder).exit_code == 1


def test_verify_notices_files_that_fit_their_hash_and_do_not_load(folder: Path) -> None:
    """The manifest of a broken build is not proof enough."""
    (folder / "quick.onnx").write_bytes(b"not a model")
    write = json.loads((folder / "manifest.json").read_text())
    write["sha256"]["quick.onnx"] = hashlib.sha256(b"not a model").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(write))
    done = run("verify", folder)
    assert done.exit_code == 1
    assert "does not load" in done.output


def test_verify_notices_a_model_that_cannot_tell_attacks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads and knows nothing."""
    monkeypatch.setattr(model_command, "ATTACKS", ("salt", "flour"))
    done = run("verify", folder)
    assert done.exit_code == 1
    assert "does not tell" in done.output


def test_the_shipped_model_is_sound() -> None:
    """Hashes fit, it loads, and the probe texts come out as they should."""
    done = CliRunner().invoke(cli, ["model", "verify"])
    assert done.exit_code == 0, done.output
