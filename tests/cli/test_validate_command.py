"""`promptguard validate`: what it writes, what it keeps, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from labelled_records import CALM, data, rules_config, run

from promptguard.cli.validate import validate
from promptguard.errors import DataError, InputError
from promptguard.runs.rendering import headline_rows
from promptguard.runs.report import read_report


@pytest.fixture
def config(tmp_path: Path) -> str:
    return rules_config(tmp_path)


def test_validate_writes_three_reports_and_says_what_it_left_out(
    tmp_path: Path, config: str
) -> None:
    """Judged, skipped and bad lines are stated."""
    out = tmp_path / "report"
    result = run(
        validate, data(tmp_path, 20, "{"), "--config", config, "--out", str(out), "--rounds", "10"
    )
    assert result.exit_code == 0
    assert "20 cases, 0 borderline skipped, 1 bad line." in result.output
    assert "line 21" in result.output
    assert {path.name for path in out.iterdir()} == {
        "outcomes.jsonl", "run.json", "report.json", "report.md", "report.html",
    }  # fmt: skip
    again = run(
        validate, data(tmp_path, 20, "{"), "--config", config, "--out", str(out), "--rounds", "10",
        "--resume",
    )  # fmt: skip
    assert again.exit_code == 0


def test_validate_compares_configurations(tmp_path: Path, config: str) -> None:
    """Two files are two contenders, paired."""
    other = tmp_path / "strict.yaml"
    other.write_text(
        Path(config).read_text(encoding="utf-8") + "  preset: strict\n", encoding="utf-8"
    )
    out = tmp_path / "report"
    result = run(
        validate, data(tmp_path, 12), "--config", config, "--config", str(other), "--out", str(out),
        "--rounds", "5",
    )  # fmt: skip
    assert "rules against strict" in result.output


@pytest.mark.parametrize("extra", [(), ("--dissect",)])
def test_two_contenders_of_one_name_are_refused(
    tmp_path: Path, config: str, extra: tuple[str, ...]
) -> None:
    """A report would show the outcomes of one under both; `rules` is also a part of the engine."""
    (tmp_path / "other").mkdir()
    other, out = rules_config(tmp_path / "other"), str(tmp_path / "report")
    words = ("--config", config, "--config", other, "--out", out, *extra)
    with pytest.raises(InputError, match="'rules'"):
        run(validate, data(tmp_path, 4), *words)


def test_a_report_is_written_whatever_the_records_are_called(tmp_path: Path, config: str) -> None:
    """Half a surrogate pair in a name, which no file takes, must not cost the whole run."""
    names = ("id", "source", "category", "lang", "pair")
    rows = [
        {"text": CALM, "label": label} | {name: f"{name} \ud800" for name in names}
        for label in ("attack", "benign")
    ]
    path, out = tmp_path / "odd.jsonl", tmp_path / "report"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(validate, str(path), "--config", config, "--out", str(out), "--rounds", "5")
    assert result.exit_code == 0
    report = read_report(out / "report.json")
    assert report is not None
    assert [group.name for group in report.contenders[0].by_source] == ["source ?"]
    assert report.contenders[0].missed.listed[0].id == "id ?"


def test_validate_stops_at_a_bad_line_where_asked(tmp_path: Path, config: str) -> None:
    """Nothing is judged then."""
    with pytest.raises(DataError, match="line 5"):
        run(validate, data(tmp_path, 4, "{"), "--config", config, "--on-bad-line", "stop")


def test_an_earlier_report_is_kept(tmp_path: Path, config: str) -> None:
    """Only --force replaces it; --resume goes on with its run."""
    out = tmp_path / "report"
    words = (data(tmp_path, 8), "--config", config, "--out", str(out), "--rounds", "5")
    run(validate, *words)
    before = (out / "outcomes.jsonl").read_bytes()
    with pytest.raises(InputError, match="--force"):
        run(validate, *words)
    assert (out / "outcomes.jsonl").read_bytes() == before
    assert run(validate, *words, "--force").exit_code == 0


def test_terminal_and_report_show_one_set_of_numbers(tmp_path: Path, config: str) -> None:
    """What is printed is the headline that report.json holds, for whoever reads it."""
    out = tmp_path / "report"
    words = (data(tmp_path, 60), "--config", config, "--out", str(out), "--rounds", "5")
    result = run(validate, *words)
    report = read_report(out / "report.json")
    assert report is not None
    for label, value in headline_rows(report.contenders[0]):
        assert any(label in line and value in line for line in result.stdout.splitlines())
    assert (
        report.command == f"promptguard validate {words[0]} --config {config} --out {out} "
        "--rounds 5 --jobs 1"
    )


def test_few_records_are_warned_about(tmp_path: Path, config: str) -> None:
    """Five records give no interval."""
    out = tmp_path / "report"
    result = run(validate, data(tmp_path, 5), "--config", config, "--out", str(out))
    assert "Warning: Only 2 attacks and 3 benign records" in result.stderr
    assert " to 1.000)" not in result.stdout


def test_records_that_cannot_be_judged_show_in_the_exit_code(tmp_path: Path) -> None:
    """One where some fail, three where all do."""
    config = tmp_path / "short.yaml"
    config.write_text("conversation: {use_model: false, max_chars: 62}\n", encoding="utf-8")
    words = (data(tmp_path, 8), "--config", str(config), "--rounds", "5", "--out")
    some = run(validate, *words, str(tmp_path / "some"))
    assert some.exit_code == 1
    assert "could not judge 4 of 8" in some.stderr
    config.write_text("conversation: {use_model: false, max_chars: 10}\n", encoding="utf-8")
    assert run(validate, *words, str(tmp_path / "none")).exit_code == 3


def test_json_prints_the_report(tmp_path: Path, config: str) -> None:
    """What is on stdout is what the file holds."""
    out = tmp_path / "report"
    result = run(
        validate, data(tmp_path, 8), "--config", config, "--out", str(out), "--rounds", "5",
        "--json",
    )  # fmt: skip
    assert json.loads(result.stdout) == json.loads((out / "report.json").read_text())
    assert CALM[:20] not in result.stdout
