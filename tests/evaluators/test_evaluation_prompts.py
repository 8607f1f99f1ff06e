"""The evaluation types and their manifest."""

import json
from pathlib import Path

import pytest

from promptguard.errors import ConfigError, DataError
from promptguard.evaluators.prompts import (
    EvaluationPrompt,
    evaluation_prompt,
    evaluation_prompts,
    frame,
    prompt_hash,
    read_prompts,
    shipped_prompts,
    trial_cases,
    user_prompt,
)

RELEASED = json.loads(Path(__file__).with_name("released_prompts.json").read_text())


def test_the_five_evaluation_types_are_there() -> None:
    """Four for the user's layers, one for the developer's."""
    assert evaluation_prompts().names()[:5] == (
        "ayni_relational",
        "relational_structure",
        "trust_trajectory",
        "semantic_coherence",
        "trusted_layer_coherence",
    )


def test_a_text_does_not_change_without_a_new_version() -> None:
    """Every shipped name and version has the hash it was released with."""
    shipped = (*read_prompts(shipped_prompts()), frame())
    assert {f"{item.name}@{item.version}": item.sha256 for item in shipped} == {
        key: RELEASED[key] for key in (f"{item.name}@{item.version}" for item in shipped)
    }


def write_folder(folder: Path, text: str, **changes: object) -> Path:
    entry = {
        "name": "mine",
        "version": "1.0.0",
        "sha256": prompt_hash("as released"),
        "applies_to": ["user"],
        **changes,
    }
    (folder / "mine-1.0.0.md").write_text(text)
    manifest = {"format": 1, "frame": entry, "evaluation_types": [entry]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_changed_text_is_a_data_error_that_says_what_to_do(tmp_path: Path) -> None:
    """The manifest guards the text."""
    with pytest.raises(DataError, match="new version"):
        read_prompts(write_folder(tmp_path, "changed"))


def test_line_ends_do_not_change_a_text(tmp_path: Path) -> None:
    """A checkout on another system is still the same release."""
    (found,) = read_prompts(write_folder(tmp_path, "as released\r\n"))
    assert found.text == "as released"


@pytest.mark.parametrize("changes", [{"version": "2.0.0"}, {"applies_to": ["nobody"]}])
def test_a_manifest_that_does_not_fit_is_a_data_error(tmp_path: Path, changes) -> None:
    """A missing file or an unknown layer."""
    with pytest.raises(DataError):
        read_prompts(write_folder(tmp_path, "as released", **changes))


@pytest.mark.parametrize("name", ["mine-1.0.0.md", "manifest.json"])
def test_a_damaged_file_is_a_data_error(tmp_path: Path, name: str) -> None:
    """Bytes that are no text are told like any other damage."""
    (write_folder(tmp_path, "as released") / name).write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"manifest|mine-1\.0\.0\.md"):
        read_prompts(tmp_path)


@pytest.mark.parametrize("raw", ["", "[]", "{", '{"format": 1}'])
def test_a_broken_manifest_is_a_data_error(tmp_path: Path, raw: str) -> None:
    """Whatever is wrong with it."""
    (tmp_path / "manifest.json").write_text(raw)
    with pytest.raises(DataError, match="manifest"):
        read_prompts(tmp_path)


def test_an_unknown_type_names_the_known_ones() -> None:
    """The error says what could have been meant."""
    with pytest.raises(ConfigError, match=r"known: .*ayni_relational"):
        evaluation_prompt("astrology")


def test_the_trusted_type_is_not_for_user_layers() -> None:
    """It would take a user's orders for a developer's."""
    with pytest.raises(ConfigError, match="trusted layers"):
        user_prompt("trusted_layer_coherence")


def test_a_type_of_your_own_can_be_registered() -> None:
    """One call, and it is known like the shipped ones."""
    mine = EvaluationPrompt(name="tone", version="1", text="Judge the tone.")
    evaluation_prompts().register("tone")(mine)
    try:
        assert user_prompt("tone") is mine
    finally:
        evaluation_prompts.cache_clear()


def test_the_trial_cases_hold_attacks_and_ordinary_requests() -> None:
    """Names are unique, both kinds are there."""
    cases = trial_cases()
    assert len({case.name for case in cases}) == len(cases)
    assert {case.is_attack for case in cases} == {True, False}


def test_a_pinned_version_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge asks for its text with every call."""
    pinned = f"ayni_relational@{evaluation_prompt('ayni_relational').version}"
    first = evaluation_prompt(pinned)
    monkeypatch.setattr("promptguard.evaluators.prompts.read_versions", None)
    assert evaluation_prompt(pinned) is first
