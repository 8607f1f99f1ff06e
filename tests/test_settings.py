"""Where settings are found, what overrides them, and what an error names."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from promptguard.config import (
    ControllerConfig,
    PromptGuardConfig,
    ServiceConfig,
    Settings,
    config_hash,
    load_settings,
)
from promptguard.errors import ConfigError
from promptguard.settings import FILES, read_source
from promptguard.turns.judge import TurnJudge


def test_without_anything_the_defaults_hold(tmp_path: Path, monkeypatch) -> None:
    """An empty folder and an empty environment say nothing."""
    monkeypatch.chdir(tmp_path)
    assert load_settings(env={}) == Settings()


def test_a_file_in_the_working_folder_is_found(tmp_path: Path, monkeypatch) -> None:
    """promptguard.yaml goes before the project's table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.promptguard.conversation]\npreset = "strict"\n')
    assert load_settings(env={}).conversation.preset == "strict"
    (tmp_path / "promptguard.yaml").write_text("conversation: {preset: permissive}\n")
    assert load_settings(env={}).conversation.preset == "permissive"


def test_a_named_file_goes_first(tmp_path: Path, monkeypatch) -> None:
    """The argument goes before the variable, and both before what is found."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "promptguard.yaml").write_text("service: {port: 1}\n")
    (tmp_path / "named.yaml").write_text("service: {port: 2}\n")
    (tmp_path / "given.yaml").write_text("service: {port: 3}\n")
    env = {"PROMPTGUARD_CONFIG": "named.yaml"}
    assert load_settings(env=env).service.port == 2
    assert load_settings("given.yaml", env).service.port == 3


def test_variables_override_the_file(tmp_path: Path) -> None:
    """Values are written as in YAML; what they do not name stays."""
    path = tmp_path / "a.yaml"
    path.write_text("conversation: {preset: strict, policy: {steer_from: SUSPECT}}\n")
    env = {
        "PROMPTGUARD_CONVERSATION__POLICY__BLOCK_FROM": "UNSAFE",
        "PROMPTGUARD_CONVERSATION__SIGNALS": "[fil, semantic]",
        "PROMPTGUARD_CONVERSATION__USE_MODEL": "false",
        "PROMPTGUARD_SERVICE__PORT": "9000",
    }
    settings = load_settings(path, env)
    assert settings.conversation.policy.block_from == "UNSAFE"
    assert settings.conversation.policy.steer_from == "SUSPECT"
    assert settings.conversation.signals == ("fil", "semantic")
    assert settings.conversation.use_model is False
    assert settings.service.port == 9000


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("1: {preset: strict}\n", "the configuration"),
        ("conversation: {on: true}\n", "conversation"),
        ("conversation: {policy: {2024-01-01: x}}\n", "conversation.policy"),
        ("service: {keys: [{~: x}]}\n", "service.keys"),
    ],
)
def test_a_key_that_is_no_text_is_refused(tmp_path: Path, text: str, section: str) -> None:
    """File and section are named, whatever YAML made of the key."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"a.yaml: {section}: the key .* is not text"):
        load_settings(path, {})


@pytest.mark.parametrize("variable", ["{1: x}", "[{yes: x}]"])
def test_a_variable_with_a_key_that_is_no_text_is_refused(variable: str) -> None:
    """The variable is named."""
    name = "PROMPTGUARD_CONVERSATION__POLICY"
    with pytest.raises(ConfigError, match=f"{name}: the key .* is not text"):
        load_settings(env={name: variable})


def test_settings_that_hold_themselves_are_refused(tmp_path: Path) -> None:
    """YAML can say that, in a file and in a variable."""
    path = tmp_path / "a.yaml"
    path.write_text("conversation: &a {policy: *a}")
    with pytest.raises(ConfigError, match=r"a\.yaml holds settings that hold themselves"):
        load_settings(path, {})
    with pytest.raises(ConfigError, match="PROMPTGUARD_CONVERSATION__SIGNALS holds settings"):
        load_settings(env={"PROMPTGUARD_CONVERSATION__SIGNALS": "&a [*a]"})


def test_errors_name_file_section_and_setting(tmp_path: Path) -> None:
    """Also where the setting is deep in the file."""
    path = tmp_path / "a.yaml"
    path.write_text("conversation: {policy: {lock_after_blocks: no}}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml.*conversation\.policy\.lock_after_blocks"):
        load_settings(path, {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "conversation: {policy: {block_form: UNSAFE}}",
            (
                "conversation.policy has no setting block_form; "
                "did you mean conversation.policy.block_from?"
            ),
        ),
        (
            "weights: w.toml",
            (
                "there is no setting weights; did you mean evaluation.weights or "
                "conversation.weights or conversation.evaluation.weights?"
            ),
        ),
        (
            "evaluation: {model: local}",
            (
                "evaluation has no setting model; "
                "did you mean evaluation.models or conversation.model?"
            ),
        ),
        (
            "service: {webhooks: [{url: 'http://localhost', secret_env: A, event: [block]}]}",
            "service.webhooks.0 has no setting event; did you mean service.webhooks.0.events?",
        ),
        (
            "evaluation: {endpoint: {prices: {m: {input: 1, output: 1, outptu: 1}}}}",
            (
                "evaluation.endpoint.prices.m has no setting outptu; "
                "did you mean evaluation.endpoint.prices.m.output?"
            ),
        ),
        ("conversation: {zzz: 1}", "conversation has no setting zzz."),
        ("conversation: {self: 1}", "conversation has no setting self."),
        (
            "evaluation: {evaluation_type: [3]}",
            "evaluation.evaluation_type: Value error, write a name or a list of names.",
        ),
        ("conversation: 5", "conversation must hold settings, each with its name."),
        (
            "service: {prot: 1, port: -1}",
            (
                "service.port: Input should be greater than or equal to 0. "
                "service has no setting prot; did you mean service.port?"
            ),
        ),
    ],
)
def test_an_unknown_setting_is_told_what_was_likely_meant(
    tmp_path: Path, text: str, complaint: str
) -> None:
    """The nearest name of its section, and the same name in others."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as failed:
        load_settings(path, {})
    assert str(failed.value) == f"{path}: Configuration: {complaint}"


def test_files_are_looked_for_where_the_configuration_lies(tmp_path: Path, monkeypatch) -> None:
    """Wherever the command is started; what is written goes to the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "a.yaml").write_text(
        "conversation: {weights: w.toml, rules: [r.toml, /r.toml], store: 'sqlite:s.db'}\n"
        "service: {weights_folder: ../fitted}\n"
    )
    settings = load_settings("etc/a.yaml", {})
    assert settings.conversation.weights == "etc/w.toml"
    assert settings.conversation.rules == ("etc/r.toml", "/r.toml")
    assert settings.conversation.store == "sqlite:s.db"
    assert settings.service.weights_folder == "etc/../fitted"
    assert settings.service.quality_report == Settings().service.quality_report
    named = load_settings("etc/a.yaml", {"PROMPTGUARD_CONVERSATION__WEIGHTS": "v.toml"})
    assert named.conversation.weights == "v.toml"


def test_only_settings_that_exist_name_files() -> None:
    """What a configuration's folder is put before is text or a list of it."""
    for section, name in FILES:
        assert name in type(getattr(Settings(), section)).model_fields


def test_a_weights_file_that_is_missing_is_named_in_full(tmp_path: Path, monkeypatch) -> None:
    """So that one sees where it was looked for."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"{tmp_path}/w.toml"):
        TurnJudge.open(ControllerConfig(weights="w.toml"))


@pytest.mark.parametrize("text", ["conversation: [1]", "conversation: {policy: strict}"])
def test_a_variable_does_not_hide_a_section_that_is_none(tmp_path: Path, text: str) -> None:
    """It sets one of its settings; what else the file says would be without effect."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    name = "PROMPTGUARD_CONVERSATION__POLICY__BLOCK_FROM"
    with pytest.raises(ConfigError, match=rf"{name}: .* must hold settings"):
        load_settings(path, {name: "UNSAFE"})
    path.write_text("conversation:\n")
    assert load_settings(path, {name: "UNSAFE"}).conversation.policy.block_from == "UNSAFE"


def test_errors_name_the_project_table(tmp_path: Path, monkeypatch) -> None:
    """A table is named by its file and heading."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.promptguard.service]\nport = -1\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml \[tool\.promptguard\].*service\.port"):
        load_settings(env={})


def test_errors_name_the_variable() -> None:
    """A value that does not fit, a section that does not exist, and text that is no YAML."""
    with pytest.raises(ConfigError, match=r"PROMPTGUARD_SERVICE__PORT.*service\.port"):
        load_settings(env={"PROMPTGUARD_SERVICE__PORT": "many"})
    with pytest.raises(ConfigError, match="PROMPTGUARD_SERVER__PORT names no section"):
        load_settings(env={"PROMPTGUARD_SERVER__PORT": "1"})
    with pytest.raises(ConfigError, match="PROMPTGUARD_SERVICE__HOST is not a value"):
        load_settings(env={"PROMPTGUARD_SERVICE__HOST": "[1"})


def test_a_file_that_cannot_be_read_is_told_apart_from_one_that_is_broken(tmp_path: Path) -> None:
    """It is named once, and not as YAML that is not valid."""
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as failed:
        load_settings(path, {})
    assert str(failed.value).startswith(f"Cannot read the configuration {path}: ")


def test_equal_configurations_have_one_hash() -> None:
    """Whatever the order in which weights, prices and addresses are written."""
    one, other = (dict.fromkeys(names, 1.0) for names in ("ab", "ba"))
    first, second = PromptGuardConfig(weights=one), PromptGuardConfig(weights=other)
    assert first == second
    assert config_hash(first) == config_hash(second)
    assert config_hash(first) != config_hash(PromptGuardConfig(weights={"a": 1.0}))


def test_a_place_of_session_ids_ends_with_its_name() -> None:
    """A line end behind it would name a header that no request has."""
    with pytest.raises(ConfigError, match="write header:NAME"):
        ServiceConfig(session_fields=["header:x-session-id\n"])


def test_no_error_quotes_the_file(tmp_path: Path) -> None:
    """The line that is amiss may hold a password; its place is said instead."""
    path = tmp_path / "a.yaml"
    path.write_text("conversation:\n  store: postgresql://me:hunter2@db: x\n")
    with pytest.raises(ConfigError, match="not valid YAML at line 2, column 36") as failed:
        load_settings(path, {})
    assert "hunter2" not in str(failed.value)
    path.write_text("service: {upstream_key_env: *hunter2}\n")
    with pytest.raises(ConfigError, match="not valid YAML at line 1") as failed:
        load_settings(path, {})
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    "value", ["2026-02-30", "0b_", "[" * 5000, "!!int ''", "!!bool maybe", "!!timestamp x"]
)
def test_a_value_that_yaml_cannot_make_is_a_fault_of_the_settings(
    tmp_path: Path, value: str
) -> None:
    """Such as a date that is none, in the file and in a variable."""
    path = tmp_path / "a.yaml"
    path.write_text(f"conversation: {{system_prompt: {value}}}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml is not valid YAML"):
        load_settings(path, {})
    with pytest.raises(ConfigError, match="SYSTEM_PROMPT is not a value that YAML can read"):
        load_settings(env={"PROMPTGUARD_CONVERSATION__SYSTEM_PROMPT": value})


@pytest.mark.parametrize("body", [b"[[[", b"tool = 1", b"[[tool]]", b"# Andr\xe9"])
def test_a_broken_project_file_of_someone_else_is_passed_over(
    tmp_path: Path, body: bytes, monkeypatch
) -> None:
    """It may not be ours; a missing name in our own file is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(body)
    assert read_source(None, {}).values == {}
    (tmp_path / "promptguard.yaml").write_text("service: {host: '${NOWHERE}'}\n")
    with pytest.raises(ConfigError, match=r"promptguard\.yaml: .*NOWHERE"):
        read_source(None, {})


@pytest.mark.parametrize(
    "config",
    [Settings(), ControllerConfig(signals=["fil"]), PromptGuardConfig(models=["a", "b"])],
    ids=lambda config: type(config).__name__,
)
def test_configurations_can_be_pickled(config: object) -> None:
    """Processes and clusters get them that way; lists were made tuples."""
    assert pickle.loads(pickle.dumps(config)) == config
    assert not isinstance(getattr(config, "signals", None), list)
