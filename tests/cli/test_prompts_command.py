"""`promptguard prompts`: list, show, diff and test."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted_judges import ATTACK, NORMAL, ScriptedJudge

from promptguard.cli import cli
from promptguard.errors import ConfigError, DataError
from promptguard.evaluators.prompts import evaluation_prompt, evaluation_prompts
from promptguard.evaluators.registry import JUDGES


def prompts(*arguments: str):
    return CliRunner().invoke(cli, ["prompts", *arguments])


def test_list_shows_every_type_with_version_and_layers() -> None:
    """One line each."""
    output = prompts("list").output
    for name in evaluation_prompts().names():
        assert name in output
    assert "system, application" in output
    assert "1.0.0" in output


def test_show_prints_the_text_or_all_that_a_judge_receives() -> None:
    """With the frame on request."""
    text = evaluation_prompt("ayni_relational").text
    assert prompts("show", "ayni_relational").output.strip() == text
    full = prompts("show", "ayni_relational", "--full").output
    assert text in full
    assert "[MARKER layer]" in full
    assert isinstance(prompts("show", "astrology").exception, ConfigError)


def test_diff_says_which_file_is_no_text(tmp_path: Path) -> None:
    """A file in another encoding is an error with its name instead of a traceback."""
    path = tmp_path / "odd.txt"
    path.write_bytes(b"\xff\xfe")
    error = prompts("diff", "ayni_relational", str(path)).exception
    assert isinstance(error, ConfigError)
    assert str(path) in str(error)


def test_diff_compares_types_versions_and_files(tmp_path: Path) -> None:
    """Equal texts end with 0, different ones with 1."""
    same = prompts("diff", "ayni_relational", "ayni_relational@1.0.0")
    assert (same.exit_code, same.output) == (0, "")
    candidate = tmp_path / "candidate.md"
    candidate.write_text(evaluation_prompt("ayni_relational").text + "\nOne more rule.\n")
    changed = prompts("diff", "ayni_relational", str(candidate))
    assert changed.exit_code == 1
    assert "+One more rule." in changed.output
    assert isinstance(prompts("diff", "frame@1.0.0", "frame@9.9.9").exception, ConfigError)


def test_test_checks_the_texts_against_their_manifest(monkeypatch, tmp_path: Path) -> None:
    """A changed text is an error."""
    done = prompts("test")
    assert done.exit_code == 0
    assert done.output.count("ok") == 5
    (tmp_path / "manifest.json").write_text("{}")
    monkeypatch.setattr("promptguard.evaluators.prompts.shipped_prompts", lambda: tmp_path)
    assert isinstance(prompts("test").exception, DataError)


@pytest.fixture
def judges():
    """Two judges by name: one that finds everything, one that knows the attacks."""

    class Knowing(ScriptedJudge):
        async def judge(self, task):
            bad = ("instructions you were given", "nerve gas", "As we agreed", "SYSTEM:")
            self._default = ATTACK if any(word in task.content for word in bad) else NORMAL
            return await super().judge(task)

    JUDGES.register("alarmed")(lambda argument, config: ScriptedJudge(default=ATTACK))
    JUDGES.register("knowing")(lambda argument, config: Knowing())
    yield
    del JUDGES._parts["alarmed"], JUDGES._parts["knowing"]


def test_test_tries_the_cases_on_a_model(judges) -> None:
    """A model that is right ends with 0, one that is wrong with 1."""
    right = prompts("test", "--model", "knowing")
    assert right.exit_code == 0
    assert "wrong" not in right.output
    alarmed = prompts("test", "--model", "alarmed")
    assert alarmed.exit_code == 1
    assert "wrong normal_request" in alarmed.output


def test_every_subcommand_prints_json(judges, tmp_path: Path) -> None:
    """For programs."""
    rows = json.loads(prompts("list", "--json").output)
    assert {row["name"] for row in rows} >= {"ayni_relational", "trusted_layer_coherence"}
    shown = json.loads(prompts("show", "ayni_relational@1.0.0", "--full", "--json").output)
    assert shown["text"] == evaluation_prompt("ayni_relational").text
    assert [message["role"] for message in shown["messages"]] == ["system", "user"]
    changed = prompts("diff", "ayni_relational", "relational_structure", "--json")
    assert changed.exit_code == 1
    assert json.loads(changed.output)["is_equal"] is False
    tried = prompts("test", "--model", "alarmed", "--json")
    assert tried.exit_code == 1
    cases = {case["name"]: case["is_right"] for case in json.loads(tried.output)["cases"]}
    assert cases["normal_request"] is False
