"""The model's files: whole, missing, changed, broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_model import write_model

from promptguard.errors import ModelError
from promptguard.model.artifact import OUTPUTS, open_artifact
from promptguard.model.readers import Readers


def test_whole_files_are_not_damaged(folder: Path) -> None:
    """The hashes in the manifest are those of the files."""
    assert open_artifact(folder).damaged() == ()


@pytest.mark.parametrize("name", ["quick.onnx", "tokenizer.json", "word_pairs.npz"])
def test_a_changed_or_missing_file_is_named(folder: Path, name: str) -> None:
    """One flipped byte is enough."""
    artifact = open_artifact(folder)
    body = bytearray((folder / name).read_bytes())
    body[len(body) // 2] ^= 1
    (folder / name).write_bytes(body)
    assert artifact.damaged() == (name,)
    (folder / name).unlink()
    assert artifact.damaged() == (name,)


def test_a_missing_manifest_says_what_to_do(tmp_path: Path) -> None:
    """Without a model there is no judgement, and no guess."""
    with pytest.raises(ModelError, match="reinstall"):
        open_artifact(tmp_path)


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"name": 1}', "\ufeff\x00"])
def test_a_broken_manifest_is_a_model_error(folder: Path, body: str) -> None:
    """Whatever stands in it."""
    (folder / "manifest.json").write_text(body, encoding="utf-8")
    with pytest.raises(ModelError, match="manifest"):
        open_artifact(folder)


def test_a_manifest_with_an_unknown_field_is_refused(folder: Path) -> None:
    """A file from another version is not read by guesswork."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"colour": "red"}))
    with pytest.raises(ModelError):
        open_artifact(folder)


@pytest.mark.parametrize("name", ["quick.onnx", "tokenizer.json", "word_pairs.npz"])
@pytest.mark.parametrize("cut", [0, 100])
def test_files_that_do_not_load_are_a_model_error(folder: Path, name: str, cut: int) -> None:
    """Half a download, or an empty file; the message names the command that looks closer."""
    (folder / name).write_bytes((folder / name).read_bytes()[:cut])
    with pytest.raises(ModelError, match="model verify"):
        Readers(open_artifact(folder)).read_messages(["bread"])


@pytest.mark.parametrize("name", ["quick.onnx", "tokenizer.json", "word_pairs.npz"])
def test_files_that_load_and_are_not_the_manifests_are_refused(folder: Path, name: str) -> None:
    """Somebody else's weights would judge, and nobody would notice."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="model verify"):
        Readers(open_artifact(folder)).read_messages(["bread"])


def test_a_missing_file_is_a_model_error(folder: Path) -> None:
    """Found when the model is first used."""
    artifact = open_artifact(folder)
    (folder / "quick.onnx").unlink()
    with pytest.raises(ModelError):
        Readers(artifact).read_messages(["bread"])


def test_the_manifest_calibrates_the_outputs(tmp_path: Path) -> None:
    """The logit of a resting text is -4; the shift brings it to even."""
    plain = {"quick": 1.0, "shift": 0.0}
    fits = {name: {"alone": plain, "both": plain} for name in OUTPUTS}
    fits["attack"] = {"alone": {"quick": 1.0, "shift": 4.0}, "both": plain}
    encoder = Readers(write_model(tmp_path, calibration=fits))
    reading = encoder.read_messages(["bread"])[0]
    assert reading.attack == pytest.approx(0.5)
    assert reading.harmful == pytest.approx(0.018, abs=1e-3)
