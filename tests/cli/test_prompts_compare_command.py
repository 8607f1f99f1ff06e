"""`promptguard prompts compare`: two versions of one prompt on the same records."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripted_judges import ATTACK, NORMAL, ScriptedJudge

from promptguard.cli import cli
from promptguard.errors import ConfigError, DataError
from promptguard.evaluators.prompts import (
    evaluation_prompt,
    evaluation_prompts,
    prompt_hash,
    shipped_versions,
)
from promptguard.evaluators.recorded import recording_line
from promptguard.evaluators.registry import JUDGES
from promptguard.protocols import LayerJudgement, LayerTask
from promptguard.usage import Usage

KIND = "ayni_relational"
ATTACKS = [f"attack {number}" for number in range(12)]
BENIGN = [f"question {number}" for number in range(12)]


@pytest.fixture(autouse=True)
def _fresh_registry():
    """Candidates of one test are not known to the next."""
    yield
    evaluation_prompts.cache_clear()
    shipped_versions.cache_clear()


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Labelled records."""
    records = [
        {"id": text, "label": label, "prompt": text}
        for label, texts in (("attack", ATTACKS), ("benign", BENIGN))
        for text in texts
    ]
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return str(path)


@pytest.fixture
def candidate(tmp_path: Path) -> str:
    """A text that is in no manifest."""
    path = tmp_path / "candidate.md"
    path.write_text("Look only at the first word.")
    return str(path)


@pytest.fixture
def scripted(monkeypatch):
    """Registers a judge that is right under one version and makes `misses` under the other."""
    registered = []

    def use(*, misses: int, fails: int = 0, usage: Usage | None = None) -> str:
        class Versioned(ScriptedJudge):
            async def judge(self, task):
                is_current = "@" not in task.evaluation_type
                is_attack = task.content.startswith("attack")
                number = int(task.content.rsplit(" ", 1)[1])
                if not is_current and is_attack and number < fails:
                    raise RuntimeError("no verdict")
                is_missed = not is_current and is_attack and number < misses
                self._default = ATTACK if is_attack and not is_missed else NORMAL
                return await super().judge(task)

        JUDGES.register("versioned")(lambda argument, config: Versioned(usage=usage))
        registered.append("versioned")
        return "versioned"

    yield use
    for name in registered:
        del JUDGES._parts[name]


def compare(*arguments: str):
    return CliRunner().invoke(cli, ["prompts", "compare", *arguments])


def test_a_clear_regression_is_told_and_fails_where_asked(scripted, data, candidate) -> None:
    """Ten of 24 records that only the old version judges rightly."""
    options = (KIND, candidate, "--data", data, "--model", scripted(misses=10))
    told = compare(*options)
    assert told.exit_code == 0, told.output
    assert "12 attacks blocked, 0 passed; 12 benign passed, 0 blocked" in told.output
    assert "2 attacks blocked, 10 passed" in told.output
    assert "only A right 10, only B right 0, McNemar p = 0.0020: B is worse" in told.output
    assert "attack 3 (attack): block -> pass" in told.output
    assert compare(*options, "--fail-on-regression").exit_code == 1


def test_an_id_in_the_data_cannot_steer_the_terminal(scripted, tmp_path: Path, candidate) -> None:
    """Whoever wrote the records named them."""
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"id": "a\x1b[2Jb", "label": "attack", "prompt": ATTACKS[0]}))
    shown = compare(KIND, candidate, "--data", str(path), "--model", scripted(misses=1)).output
    assert "a\\x1b[2Jb (attack): block -> pass" in shown


def test_a_difference_within_chance_passes_the_gate(scripted, data, candidate) -> None:
    """Two records of 24 prove nothing."""
    model = scripted(misses=2)
    done = compare(KIND, candidate, "--data", data, "--model", model, "--fail-on-regression")
    assert done.exit_code == 0
    assert "only A right 2" in done.output
    strict = ("--alpha", "0.6", "--fail-on-regression")
    assert compare(KIND, candidate, "--data", data, "--model", model, *strict).exit_code == 1


def test_a_better_version_is_no_regression(scripted, data, candidate) -> None:
    """The other way round the same difference passes."""
    model = scripted(misses=10)
    done = compare(candidate, KIND, "--data", data, "--model", model, "--fail-on-regression")
    assert done.exit_code == 0
    assert "only B right 10" in done.output


def test_records_that_get_no_verdict_count_as_wrong(scripted, data, candidate) -> None:
    """A text that breaks the answers is worse, not unmeasured."""
    model = scripted(misses=0, fails=9)
    done = compare(KIND, candidate, "--data", data, "--model", model, "--fail-on-regression")
    assert done.exit_code == 1
    assert "9 failed" in done.output
    assert "attack 0 (attack): block -> failed" in done.output


def test_json_carries_counts_costs_and_changes(scripted, data, candidate) -> None:
    """For programs; unknown costs stay unknown."""
    model = scripted(misses=1, usage=Usage(calls=1, input_tokens=3, cost_usd=0.5, unpriced_calls=0))
    body = json.loads(compare(KIND, candidate, "--data", data, "--model", model, "--json").stdout)
    assert body["records"] == 24
    assert body["first"]["usage"]["cost_usd"] == pytest.approx(12.0)
    assert body["second"]["usage"]["calls"] == 24
    assert body["second"]["false_negatives"] == 1
    assert body["changed"] == [
        {"id": "attack 0", "label": "attack", "first": "block", "second": "pass"}
    ]
    assert body["is_regression"] is False


def test_what_a_tool_returned_is_judged_too(scripted, tmp_path: Path, candidate) -> None:
    """An attack in a tool's result is one, also where nobody said a word."""
    result = [{"role": "tool", "content": "attack 5"}]
    asked = [{"role": "user", "content": "question 1"}, *result]
    records = [
        {"id": n, "label": "attack", "messages": said} for n, said in enumerate((result, asked))
    ]
    data = tmp_path / "tools.jsonl"
    data.write_text("\n".join(map(json.dumps, records)))
    model = scripted(misses=0)
    done = compare(KIND, candidate, "--data", str(data), "--model", model, "--json")
    first = json.loads(done.stdout)["first"]
    assert (first["true_positives"], first["failed"]) == (2, 0)


def test_two_shipped_versions_are_compared_on_a_recording(
    monkeypatch, tmp_path: Path, data: str
) -> None:
    """The manifest may list several versions; the recording holds both."""
    texts = {"1.0.0": "Look at the request.", "1.1.0": "Look at the request twice."}
    entries = []
    for version, text in texts.items():
        (tmp_path / f"{KIND}-{version}.md").write_text(text)
        entries.append(
            {
                "name": KIND,
                "version": version,
                "sha256": prompt_hash(text),
                "applies_to": ["user"],
                "finds": "manipulative",
            }
        )
    (tmp_path / "frame-1.md").write_text("frame {question}")
    manifest = {
        "format": 1,
        "frame": {
            "name": "frame",
            "version": "1",
            "sha256": prompt_hash("frame {question}"),
            "applies_to": ["user"],
        },
        "evaluation_types": entries,
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setattr("promptguard.evaluators.prompts.shipped_prompts", lambda: tmp_path)
    evaluation_prompts.cache_clear()
    shipped_versions.cache_clear()
    assert evaluation_prompt(KIND).version == "1.1.0"
    recording = tmp_path / "recording.jsonl"
    with recording.open("w") as out:
        for version in texts:
            for text in ATTACKS + BENIGN:
                is_found = text in ATTACKS or (version == "1.1.0" and text in BENIGN[:8])
                task = LayerTask(evaluation_type=f"{KIND}@{version}", content=text, layer="USER")
                said = LayerJudgement(
                    value=ATTACK if is_found else NORMAL,
                    evaluation_type=task.evaluation_type,
                    model="recorded",
                )
                out.write(recording_line(task, said) + "\n")
    done = compare(
        f"{KIND}@1.0.0",
        f"{KIND}@1.1.0",
        "--data",
        data,
        "--model",
        f"recorded:{recording}",
        "--fail-on-regression",
    )
    assert done.exit_code == 1, done.exception
    assert "A ayni_relational@1.0.0: 12 attacks blocked" in done.output
    assert "8 blocked; 0 failed; 0 calls, $0.0000" in done.output


def test_what_cannot_be_compared_is_refused(data: str, candidate: str, tmp_path: Path) -> None:
    """Two types, two files without a type, an unknown version, no records."""
    rest = ("--data", data, "--model", "local")
    assert "one evaluation type" in str(compare(KIND, "trust_trajectory", *rest).exception)
    assert "--type" in str(compare(candidate, candidate, *rest).exception)
    unknown = compare(KIND, f"{KIND}@9.9.9", *rest).exception
    assert isinstance(unknown, ConfigError)
    assert "known: 1.0.0" in str(unknown)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    nothing = compare(KIND, candidate, "--data", str(empty), "--model", "local").exception
    assert isinstance(nothing, DataError)


def test_the_embedded_judge_does_not_read_prompts(data: str, candidate: str) -> None:
    """Comparing texts with it makes no sense, and says so."""
    done = compare(KIND, candidate, "--data", data, "--model", "local")
    assert isinstance(done.exception, ConfigError)
    assert "cannot judge" in str(done.exception)
