"""Replaying stored judgements."""

from pathlib import Path

import pytest
from scripted_judges import ATTACK, NORMAL, ScriptedJudge

from promptguard.config import PromptGuardConfig
from promptguard.errors import ConfigError, DataError, EvaluationError
from promptguard.evaluators.recorded import RecordedJudge, read_recording, recording_line
from promptguard.evaluators.registry import named_judge
from promptguard.protocols import LayerTask
from promptguard.usage import Usage


def task(content: str, kind: str = "ayni_relational") -> LayerTask:
    return LayerTask(evaluation_type=kind, content=content, layer="USER")


async def test_what_was_recorded_is_replayed_at_no_cost(tmp_path: Path) -> None:
    """By text and evaluation type, with the model that judged."""
    judge = ScriptedJudge({"ayni_relational": ATTACK}, default=NORMAL, name="grok")
    tasks = [task("one"), task("one", "relational_structure"), task("two\ud800")]
    lines = [recording_line(item, await judge.judge(item)) for item in tasks]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join([*lines, ""]))
    replayed = named_judge(f"recorded:{path}", PromptGuardConfig())
    for item in tasks:
        original, found = await judge.judge(item), await replayed.judge(item)
        assert (found.value, found.model) == (original.value, "grok")
        assert found.usage == Usage()
    assert replayed.evaluation_types == ("ayni_relational", "relational_structure")


def test_a_recording_does_not_hold_the_text() -> None:
    """Only its hash."""
    judgement = read_recording(
        ['{"evaluation_type":"a","content_sha256":"00","truth":0,"indeterminacy":0,"falsehood":1}']
    )["a", "00"]
    assert "secret" not in recording_line(task("secret"), judgement)


async def test_a_text_that_was_not_recorded_is_an_error() -> None:
    """No recording is not a verdict."""
    with pytest.raises(EvaluationError, match="record it first") as caught:
        await RecordedJudge({}).judge(task("secret"))
    assert "secret" not in str(caught.value)


OUT_OF_RANGE = (
    '{"evaluation_type":"a","content_sha256":"0","truth":2,"indeterminacy":0,"falsehood":0}'
)


@pytest.mark.parametrize("line", ["{", "{}", OUT_OF_RANGE])
def test_a_broken_line_is_named_by_its_number(line: str) -> None:
    """Bad JSON, missing fields, numbers out of range."""
    with pytest.raises(DataError, match="Line 2"):
        read_recording(["", line])


@pytest.mark.parametrize("name", ["recorded", "recorded:", "recorded:/no/such/file"])
def test_a_recording_that_cannot_be_read_is_a_config_error(name: str) -> None:
    """It says what is missing."""
    with pytest.raises(ConfigError):
        named_judge(name, PromptGuardConfig())
