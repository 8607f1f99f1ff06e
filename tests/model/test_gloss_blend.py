"""What the readers make of a text and its gloss, with a model whose logits can be counted."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tiny_model import RESTING, TELLING, write_model

from promptguard.cli import cli
from promptguard.conversation import Message, Role
from promptguard.errors import ModelError
from promptguard.model.artifact import Artifact, open_artifact
from promptguard.model.gloss import hash_of
from promptguard.model.network import ASSISTANT, Network, Window, sigmoid
from promptguard.model.readers import MAX_CHARS, Readers
from promptguard.model.reading import GLOSS, QUICK, THOROUGH

ENGLISH = ("attack", "bread", "water")
GERMAN = ("angriff", "brot", "wasser")
TEXT = "Angriff Brot Wasser"


def glossed_model(folder: Path, **blend: Any) -> Artifact:
    """Write the tiny model with three German words."""
    write_model(folder)
    places = {hash_of(word): place for place, word in enumerate(GERMAN)}
    hashes = np.array(sorted(places), dtype=np.uint32)
    np.savez(
        folder / "gloss.npz",
        **{
            "english": np.frombuffer("\n".join(ENGLISH).encode(), dtype=np.uint8),
            "de.steps": np.diff(hashes, prepend=np.uint32(0)).astype(np.uint32),
            "de.english": np.array([places[int(h)] for h in hashes], dtype=np.uint16),
        },
    )
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    digest = hashlib.sha256((folder / "gloss.npz").read_bytes()).hexdigest()
    manifest["sha256"]["gloss.npz"] = digest
    manifest["gloss"] = {"share": 0.25, "scale": 2.0, "from_logit": RESTING} | blend
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return open_artifact(folder)


@pytest.fixture
def readers(tmp_path: Path) -> Readers:
    return Readers(glossed_model(tmp_path / "model"))


@pytest.mark.parametrize("thorough", [False, True])
def test_a_message_is_the_scaled_mean_of_itself_and_its_gloss(
    readers: Readers, thorough: bool
) -> None:
    """The tiny model knows no German, so all it finds comes from the gloss."""
    (reading,) = readers.read_messages([TEXT], thorough=thorough)
    expected = 2.0 * (0.75 * RESTING + 0.25 * (RESTING + TELLING))
    assert math.isclose(reading.attack, sigmoid(expected), rel_tol=1e-5)
    assert reading.readers == ((QUICK, THOROUGH, GLOSS) if thorough else (QUICK, GLOSS))


@pytest.mark.parametrize("thorough", [False, True])
def test_the_users_turns_of_a_talk_are_read_with_their_glosses(
    readers: Readers, thorough: bool
) -> None:
    talk = [
        Message(role=Role.USER, content="Brot Wasser Brot"),
        Message(role=Role.ASSISTANT, content=TEXT),
        Message(role=Role.USER, content=TEXT),
    ]
    own = Readers(open_artifact(readers.artifact.folder))  # the same files, nothing cached
    reading = own.read_context(talk, thorough=thorough)
    assert reading.turn > sigmoid(2.0 * RESTING)
    assert GLOSS in reading.readers
    # What the assistant says is not glossed.
    quiet = [talk[0], talk[1], Message(role=Role.USER, content="Brot Wasser Brot")]
    assert own.read_context(quiet, thorough=thorough).turn < reading.turn


def test_replies_are_left_out_of_the_gloss_of_a_talk(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have none, and in their own language they would only make the window longer."""
    read: list[Window] = []
    run = Network.run
    monkeypatch.setattr(
        Network, "run", lambda network, windows: (read.extend(windows), run(network, windows))[1]
    )
    said = (Role.USER, Role.ASSISTANT, Role.USER)
    readers.read_context([Message(role=role, content=TEXT) for role in said])
    assert [ASSISTANT in speakers for _, speakers in read] == [True, False]


def test_what_is_plainly_innocent_is_read_without_a_gloss(tmp_path: Path) -> None:
    """Reading every ordinary text twice would double its cost and find nothing."""
    readers = Readers(glossed_model(tmp_path / "model", from_logit=RESTING + 1))
    talk = [Message(role=Role.USER, content=TEXT)]
    (reading,) = readers.read_messages([TEXT], thorough=True)
    assert reading.readers == (QUICK, THOROUGH)
    # It is scaled like what is read with one.
    assert math.isclose(reading.attack, sigmoid(2.0 * RESTING), rel_tol=1e-5)
    assert readers.read_context(talk).readers == (QUICK,)


def test_english_is_read_as_it_stands(readers: Readers) -> None:
    (reading,) = readers.read_messages(["attack bread water"])
    assert math.isclose(reading.attack, sigmoid(RESTING + TELLING), rel_tol=1e-5)
    assert reading.readers == (QUICK,)


def test_a_text_that_is_not_read_whole_has_no_gloss(readers: Readers) -> None:
    """A gloss of its head would speak for the end as well."""
    long = TEXT + " " * MAX_CHARS
    (within, beyond) = readers.read_messages([long[:MAX_CHARS], f"{long}bread"])
    assert within.readers == (QUICK, GLOSS)
    assert beyond.readers == (QUICK,)


def test_a_document_is_read_without_a_gloss(readers: Readers) -> None:
    (reading,) = readers.read_documents([TEXT])
    assert reading.readers == (QUICK,)


def test_a_damaged_glossary_is_an_error_and_never_read(tmp_path: Path) -> None:
    folder = glossed_model(tmp_path / "model").folder
    (folder / "gloss.npz").write_bytes(b"PK damaged")
    with pytest.raises(ModelError, match=r"gloss\.npz"):
        Readers(open_artifact(folder)).read_messages([TEXT])


def test_a_glossary_that_fits_its_hash_and_is_none_is_an_error(tmp_path: Path) -> None:
    folder = glossed_model(tmp_path / "model").folder
    (folder / "gloss.npz").write_bytes(b"not arrays")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["sha256"]["gloss.npz"] = hashlib.sha256(b"not arrays").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ModelError):
        Readers(open_artifact(folder)).read_messages([TEXT])


@pytest.mark.parametrize(
    "blend", [{"share": 1.5}, {"share": -0.1}, {"scale": 0.0}, {"from_logit": "low"}]
)
def test_a_blend_out_of_range_is_refused(tmp_path: Path, blend: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        glossed_model(tmp_path / "model", **blend)


def test_info_tells_how_much_a_gloss_counts(tmp_path: Path) -> None:
    folder = glossed_model(tmp_path / "model").folder
    done = CliRunner().invoke(cli, ["model", "info", "--folder", str(folder)])
    assert (
        "gloss: 25% of the logits of a text in another language, from -4 on; its logits times 2"
        in done.output
    )
