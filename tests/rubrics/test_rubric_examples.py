"""The example files, by the loader that the command uses."""

import json

import pytest

from promptguard.errors import DataError
from promptguard.rubrics.examples import example_from, validate_examples

GOOD = {
    "id": "negative-001",
    "type": "negative",
    "conversation": [{"role": "user", "content": "Should it?"}],
    "expectedResult": False,
    "rationale": "One turn.",
}


@pytest.mark.parametrize("result", validate_examples(), ids=lambda result: result.name)
def test_every_shipped_example_is_judged_as_expected(result) -> None:
    """None is misclassified."""
    assert result.is_right, result


def test_there_are_enough_examples_in_two_languages() -> None:
    """At least 28 of each kind, with Japanese among both."""
    names = [result.name for result in validate_examples()]
    for kind in ("positive/", "negative/"):
        assert sum(name.startswith(kind) for name in names) >= 28
        assert any(name.startswith(kind) and "japanese" in name for name in names)
    assert len({result.example.example_id for result in validate_examples()}) == len(names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "id"),
        ({"type": "positive"}, "type"),
        ({"expectedResult": True}, "expectedResult"),
        ({"expectedResult": 0}, "expectedResult"),
        ({"rationale": None}, "rationale"),
        ({"conversation": []}, "conversation"),
        ({"conversation": [{"content": "x"}]}, "no role"),
    ],
)
def test_a_broken_example_says_which_field(change, message) -> None:
    """The fault names the field."""
    with pytest.raises(DataError, match=message):
        example_from(json.dumps(GOOD | change), kind="negative")


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_an_example_must_be_an_object(text) -> None:
    """Other JSON, or none, is refused."""
    with pytest.raises(DataError):
        example_from(text, kind="negative")


def test_a_broken_file_does_not_stop_the_others(tmp_path) -> None:
    """Each file has its own result."""
    (tmp_path / "negative").mkdir()
    (tmp_path / "negative" / "001-good.json").write_text(json.dumps(GOOD))
    (tmp_path / "negative" / "002-bad.json").write_bytes(b"\xff")
    good, bad = validate_examples(tmp_path)
    assert good.is_right
    assert (bad.is_right, bad.fault) == (False, "cannot be read as UTF-8 text")


def test_an_empty_folder_is_an_error(tmp_path) -> None:
    """Nothing to judge is not a success."""
    with pytest.raises(DataError):
        validate_examples(tmp_path)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000], ids=["number", "nesting"])
def test_json_that_python_cannot_hold_is_a_fault(text) -> None:
    """A number of thousands of digits, and lists within lists without end."""
    with pytest.raises(DataError, match="JSON"):
        example_from(text, kind="negative")
