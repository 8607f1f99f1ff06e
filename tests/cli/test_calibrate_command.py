"""`promptguard calibrate`: what it promises, and that its file takes effect."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from labelled_records import data, rules_config, run

from promptguard.cli.calibrate import calibrate
from promptguard.cli.tune import tune
from promptguard.config import load_settings
from promptguard.errors import ConfigError, DataError, InputError
from promptguard.risk.weights import load_weights
from promptguard.state import SessionState
from promptguard.turns.input import TurnInput
from promptguard.turns.judge import TurnJudge
from promptguard.verdict import Action


@pytest.fixture
def config(tmp_path: Path) -> str:
    return rules_config(tmp_path)


def test_calibrate_states_guarantee_and_sample(tmp_path: Path, config: str) -> None:
    """The written weights hold the budget."""
    out = tmp_path / "w.toml"
    result = run(
        calibrate, data(tmp_path, 200), "--fpr", "0.05", "--config", config, "--out", str(out)
    )
    assert "samples of 100" in result.output
    assert any(budget.share == 0.05 for budget in load_weights(out).budgets)


def test_what_could_not_be_judged_is_told_and_not_counted(tmp_path: Path, config: str) -> None:
    """The weights file names the conversations that its budgets rest on."""
    out = tmp_path / "w.toml"
    mute = {"id": "mute", "label": "benign", "messages": [{"role": "system", "content": "x"}]}
    given = data(tmp_path, 200, json.dumps(mute))
    result = run(calibrate, given, "--fpr", "0.05", "--config", config, "--out", str(out))
    assert "1 of 101 cases could not be judged." in result.stderr
    assert "on 100 benign conversations" in load_weights(out).fitted_on


def test_calibrate_refuses_too_little_data(tmp_path: Path, config: str) -> None:
    """And says how much is needed."""
    with pytest.raises(DataError, match="at least 99"):
        run(calibrate, data(tmp_path, 20), "--config", config)


def test_the_printed_section_puts_the_calibrated_prior_into_effect(
    tmp_path: Path, config: str
) -> None:
    """Pasted into a configuration file it is accepted, and the engine judges with it."""
    out = tmp_path / "odd: #name.toml"
    words = (data(tmp_path, 200), "--fpr", "0.05", "--config", config)
    result = run(calibrate, *words, "--out", str(out))
    section = result.stdout[result.stdout.index("conversation:") :]
    pasted = tmp_path / "pasted.yaml"
    pasted.write_text(section, encoding="utf-8")
    settings = load_settings(pasted).conversation
    (point,) = (b for b in load_weights(out).budgets if b.share == 0.05)
    judge = TurnJudge.open(settings.model_copy(update={"use_model": False}))
    assert judge.priors.first == pytest.approx(point.first)
    present = TurnJudge.open(load_settings(config).conversation)
    assert judge.priors.first != pytest.approx(present.priors.first)
    found = json.loads(run(calibrate, *words, "--json").stdout)["conversation"]
    assert found[0]["priors"]["first"] == pytest.approx(point.first, abs=1e-6)
    assert found[0]["bounds"]["first"]["n"] == found[0]["benign"]


def test_a_budget_is_kept_with_the_signals_that_it_is_computed_with(tmp_path: Path) -> None:
    """`form` counts under a large budget only, and must be in the scores it is calibrated on."""
    config = tmp_path / "form.yaml"
    config.write_text("conversation: {use_model: false, signals: [fil, form]}\n", encoding="utf-8")
    texts = ["W h a t  s h a l l  I  c o o k ?" if n < 15 else "Cook what?" for n in range(100)]
    records = tmp_path / "d.jsonl"
    lines = (
        {"id": n, "label": "benign", "messages": [{"role": "user", "content": text}]}
        for n, text in enumerate(texts)
    )
    records.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    out = tmp_path / "w.toml"
    words = (str(records), "--fpr", "0.1", "--config", str(config), "--out", str(out))
    run(calibrate, *words)
    held = load_settings(config).conversation.model_copy(
        update={"weights": str(out), "false_positive_budget": 0.1}
    )
    judge = TurnJudge.open(held)
    verdicts = (
        judge.judge(SessionState(session_id="s"), TurnInput(text=text), now=1.0)[0]
        for text in texts
    )
    assert sum(verdict.action is Action.BLOCK for verdict in verdicts) <= 10


def test_an_existing_weights_file_is_kept(tmp_path: Path, config: str) -> None:
    """Before anything is judged."""
    out = tmp_path / "w.toml"
    out.write_text("precious", encoding="utf-8")
    words = (data(tmp_path, 200), "--fpr", "0.05", "--config", config, "--out", str(out))
    with pytest.raises(InputError, match="--force"):
        run(calibrate, *words)
    assert out.read_text(encoding="utf-8") == "precious"
    assert run(calibrate, *words, "--force").exit_code == 0


@pytest.mark.parametrize("command", [calibrate, tune])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: click.Command
) -> None:
    """What took minutes to compute would else be lost."""

    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("the data was read")

    monkeypatch.setattr("promptguard.validation.dataset.load_dataset", nothing)
    with pytest.raises(ConfigError, match="does not exist; make it"):
        run(command, data(tmp_path, 4), "--out", str(tmp_path / "missing" / "w.toml"))


def test_a_prompts_threshold_is_stated_with_its_guarantee(tmp_path: Path, config: str) -> None:
    """In words for people, in numbers for programs."""
    words = (data(tmp_path, 200), "--target", "prompt", "--fpr", "0.05", "--config", config)
    assert "decision_threshold: " in run(calibrate, *words).output
    (bound,) = json.loads(run(calibrate, *words, "--json").stdout)["prompt"]
    assert 0.0 <= bound["threshold"] <= 1.0
    assert bound["share"] == 0.05 < bound["upper"]


def test_a_prompts_threshold_is_no_weights_file(tmp_path: Path, config: str) -> None:
    """It goes into the configuration, so that --out is refused."""
    words = (data(tmp_path, 200), "--target", "prompt", "--config", config)
    with pytest.raises(InputError, match="--out"):
        run(calibrate, *words, "--out", str(tmp_path / "w.toml"))
