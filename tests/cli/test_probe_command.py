"""`promptguard probe` with scripted targets."""

import json

import pytest
import yaml
from click.testing import CliRunner, Result
from scripted_targets import RuleTarget, pliable

from promptguard.cli.probe import probe
from promptguard.errors import ConfigError, ProviderError


@pytest.fixture
def target(monkeypatch):
    """Puts a scripted target in place of the endpoint; call it to choose which."""

    def use(**options) -> RuleTarget:
        made = RuleTarget(pliable, **options)
        monkeypatch.setattr("promptguard.providers.open_provider", lambda *_: made)
        return made

    return use


def run(*arguments: str) -> Result:
    return CliRunner().invoke(probe, ["--target", "ollama/x", *arguments])


def test_a_run_leaves_log_scores_and_reports(target, tmp_path) -> None:
    """Everything lies in the folder."""
    target()
    topic = {"id": "bread", "question": "Should bread be free?"}
    lists = ("arguments_for", "arguments_against", "edge_cases", "stakeholders")
    (tmp_path / "bread.yaml").write_text(yaml.safe_dump(topic | {n: ["a", "b"] for n in lists}))
    topics = ("--topics", str(tmp_path / "bread.yaml"))
    result = run("--conversations", "5", "--out", str(tmp_path / "run"), *topics)
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"run.json", "conversations.jsonl", "scores.json", "report.md", "report.html"}
    lines = (tmp_path / "run" / "conversations.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 5
    assert first["verdict"] == "contradiction"
    assert {"id", "time", "model", "messages", "classification", "strategy"} <= set(first)
    assert {"tactics", "input_tokens", "output_tokens", "cost_usd"} <= set(first)
    assert "5 of 5 conversations hold a contradiction" in result.stdout


def test_a_failed_run_goes_on_with_resume(target, tmp_path) -> None:
    """What was logged is not asked again."""
    target(fails_at=6)
    options = ("--conversations", "4", "--out", str(tmp_path))
    failed = run(*options)
    assert isinstance(failed.exception, ProviderError)
    assert "keeps 2 conversations" in str(failed.exception)
    again = target()
    assert run(*options, "--resume").exit_code == 0
    assert again.calls == 4
    assert isinstance(run(*options).exception, ConfigError)


def test_a_dry_run_calls_and_writes_nothing(target, tmp_path) -> None:
    """It shows the plan."""
    made = target()
    result = run("--conversations", "3", "--out", str(tmp_path / "run"), "--dry-run")
    assert result.exit_code == 0
    assert "3 conversations with ollama/x" in result.stdout
    assert made.calls == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["gpt-4o", "http://", "ollama/"])
@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--resume",)])
def test_an_invalid_target_is_refused_before_anything_is_written(tmp_path, name, more) -> None:
    """Under --dry-run too."""
    folder = tmp_path / "run"
    done = CliRunner().invoke(probe, ["--target", name, "--out", str(folder), *more])
    assert isinstance(done.exception, ConfigError)
    assert not folder.exists()


def test_a_missing_key_is_refused_before_anything_is_written(tmp_path, monkeypatch) -> None:
    """The folder stays free for the run with a key; the plan can be seen without one."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    folder = tmp_path / "run"
    arguments = ["--target", "vendor/model", "--out", str(folder)]
    done = CliRunner().invoke(probe, arguments)
    assert "OPENROUTER_API_KEY" in str(done.exception)
    assert not folder.exists()
    assert CliRunner().invoke(probe, [*arguments, "--dry-run"]).exit_code == 0


def test_a_run_that_reached_no_model_can_be_started_again(target, tmp_path) -> None:
    """The same command, without --resume; with it as well."""
    options = ("--conversations", "2", "--out", str(tmp_path))
    for more in ((), ("--resume",), ()):
        target(fails_at=1)
        failed = run(*options, *more)
        assert "start the same command again" in str(failed.exception)
    target()
    assert run(*options).exit_code == 0
    assert isinstance(run(*options).exception, ConfigError)


def test_a_run_that_broke_off_tells_what_its_last_conversation_cost(target, tmp_path) -> None:
    """It is in no log."""
    target(fails_at=2)
    failed = run("--conversations", "2", "--out", str(tmp_path))
    assert "The last one took 1 call," in str(failed.exception)


def test_report_and_plan_are_printed_as_json(target, tmp_path) -> None:
    """For programs; progress goes to standard error."""
    target()
    options = ("--conversations", "3", "--out", str(tmp_path / "run"), "--json")
    plan = json.loads(run(*options, "--dry-run").stdout)
    assert (plan["target"], plan["conversations"], len(plan["openings"])) == ("ollama/x", 3, 3)
    report = json.loads(run(*options).stdout)
    assert report["total"]["n"] == 3
    assert {table["title"] for table in report["tables"]} >= {"Model", "Topic", "Strategy"}


def test_unknown_topics_are_refused(tmp_path) -> None:
    """Before anything is called."""
    assert run("--topics", str(tmp_path / "none.yaml"), "--dry-run").exit_code == 2
