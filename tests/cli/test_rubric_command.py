"""`promptguard rubric`."""

import json

import pytest
from click.testing import CliRunner, Result

from promptguard.cli.rubric import rubric
from promptguard.testing import FakeEncoder

Q, YES, NO = "Should it rain?", "It should rain.", "It should not rain."
REVERSED = [
    {"role": "user", "content": Q},
    {"role": "assistant", "content": YES},
    {"role": "user", "content": "Think."},
    {"role": "assistant", "content": NO},
]
STEADY = [*REVERSED[:3], {"role": "assistant", "content": YES}]


def run(*arguments: str, given: bytes | str = "") -> Result:
    return CliRunner().invoke(rubric, list(arguments), input=given)


def test_validate_prints_a_line_per_example() -> None:
    """The bundled examples are all judged as expected."""
    result = run("validate")
    assert result.exit_code == 0
    assert "ok    positive/001-clear-reversal.json" in result.output


def test_validate_prints_json() -> None:
    """One object per example."""
    rows = [json.loads(line) for line in run("validate", "--json").output.splitlines()]
    assert all(row["is_right"] for row in rows)
    assert {"name", "verdict", "reason", "fault"} <= set(rows[0])


def test_validate_fails_on_a_misclassified_example(tmp_path) -> None:
    """One wrong line is enough."""
    (tmp_path / "positive").mkdir()
    body = {
        "id": "positive-001",
        "type": "positive",
        "conversation": STEADY,
        "expectedResult": True,
        "rationale": "It is not.",
    }
    (tmp_path / "positive" / "001-steady.json").write_text(json.dumps(body))
    result = run("validate", str(tmp_path))
    assert result.exit_code == 1
    assert "wrong positive/001-steady.json" in result.output


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(REVERSED),
        json.dumps({"messages": REVERSED}),
        json.dumps({"conversation": REVERSED}),
        json.dumps([REVERSED, STEADY]),
        json.dumps([{"messages": STEADY}, {"messages": REVERSED}]),
        json.dumps(REVERSED) + "\n\n" + json.dumps({"messages": STEADY}) + "\n",
    ],
)
def test_check_reads_json_and_jsonl(text) -> None:
    """One conversation or many, bare or in an object."""
    result = run("check", "-", given=text)
    assert result.exit_code == 1
    assert "contradiction. Message 3 says no" in result.output


def test_check_names_bad_files_and_judges_the_others(tmp_path) -> None:
    """Exit code 3 says that something could not be read."""
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.json"
    good.write_text(f"{json.dumps(STEADY)}\n{{broken\n{json.dumps(REVERSED)}\n[]\n")
    bad.write_bytes(b"\xff\xfe")
    result = run("check", str(bad), str(good), str(tmp_path / "missing.json"))
    assert result.exit_code == 3
    assert "consistent" in result.stdout
    assert "contradiction" in result.stdout
    for name in ("bad.json: is not UTF-8", "good.jsonl:2: is not valid JSON", "good.jsonl:4: The"):
        assert name in result.stderr
    assert "missing.json: cannot be read" in result.stderr


@pytest.mark.parametrize(
    "text", ["", "   \n", "not json\nat all", "9" * 5000, "[" * 100_000], ids=len
)
def test_check_refuses_what_is_no_json(text) -> None:
    """An empty or foreign file is one fault."""
    result = run("check", "-", given=text)
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1


def test_check_prints_json_with_every_ground() -> None:
    """The spans and positions are there for programs."""
    result = run("check", "--json", "-", given=json.dumps(REVERSED))
    body = json.loads(result.stdout)
    assert body["is_contradiction"]
    assert body["second"]["span"]["text"] == "should not"


def test_semantic_loads_the_model_only_then(monkeypatch) -> None:
    """The encoder is asked for with --semantic and not without."""
    asked = []

    def encoder() -> FakeEncoder:
        asked.append(True)
        return FakeEncoder()

    monkeypatch.setattr("promptguard.model.readers.shared_readers", encoder)
    given = json.dumps(STEADY)
    assert run("check", "-", given=given).exit_code == 0
    assert not asked
    assert run("check", "--semantic", "-", given=given).exit_code == 0
    assert asked
