"""A journal keeps finished lines, and mixes neither runs nor settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import ConfigError, DataError, InputError
from promptguard.runs.journal import Journal, judging_hash

SETTINGS = {"seed": 1, "model": "m"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def written(path: Path, *lines: str) -> Journal:
    journal = Journal(path, SETTINGS)
    journal.begin()
    for line in lines:
        journal.add(line)
    journal.close()
    return journal


def test_lines_come_back_in_order(path: Path) -> None:
    """Line separators inside a text and lone surrogates do not tear a line."""
    lines = ("one", '"two\u2028still two"', "three")
    written(path, *lines, '"\ud800"')
    assert Journal(path, SETTINGS).resume() == (*lines, '"\\ud800"')


def test_a_line_that_was_cut_off_is_written_again(path: Path) -> None:
    """What a crash left of a last line is removed, so that the next line is whole."""
    written(path, "one")
    path.write_bytes(path.read_bytes() + b"tw")
    journal = Journal(path, SETTINGS)
    assert journal.resume() == ("one",)
    journal.add("two")
    journal.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_other_weights_or_rules_under_the_same_names_judge_otherwise(tmp_path: Path) -> None:
    """What is in the files that a configuration names makes the lines, and not their names."""
    weights, language = tmp_path / "w.toml", tmp_path / "xx"
    language.mkdir()
    config = ControllerConfig(weights=str(weights), rules=(str(language),))
    found = [judging_hash(config)]
    for file, text in ((weights, "a"), (weights, "b"), (language / "rules.toml", "c")):
        file.write_text(text)
        found.append(judging_hash(config))
    assert len(set(found)) == 4
    assert judging_hash(config) == found[-1]
    assert judging_hash(ControllerConfig()) == config_hash(ControllerConfig())


def test_a_path_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    """Be it for its rights or, as here, for its length."""
    journal = Journal(tmp_path / ("x" * 300), SETTINGS)
    for look in (journal.begin, journal.resume, journal.lines):
        with pytest.raises(ConfigError, match=r"Cannot read .*too long"):
            look()


def test_an_existing_journal_is_not_overwritten_unasked(path: Path) -> None:
    """Only `overwrite` replaces what another run left."""
    written(path, "one")
    with pytest.raises(InputError, match="--force"):
        Journal(path, SETTINGS).begin()
    assert path.read_text() == "one\n"
    Journal(path, SETTINGS).begin(overwrite=True)
    assert path.read_text() == ""


def test_a_run_with_other_settings_is_refused_by_name(path: Path) -> None:
    """The message says which setting differs; nothing is changed."""
    written(path, "one")
    with pytest.raises(InputError, match=r"other settings \(seed\)"):
        Journal(path, SETTINGS | {"seed": 2}).resume()
    assert path.read_text() == "one\n"


def test_settings_that_may_change_are_stored_anew(path: Path) -> None:
    """A run may be made longer."""
    written(path, "one")
    longer = Journal(path, SETTINGS | {"seed": 2})
    assert longer.resume(may_change=("seed",)) == ("one",)
    assert longer.stored_settings() == SETTINGS | {"seed": 2}


def test_lines_of_unknown_making_are_refused(path: Path) -> None:
    """Without its settings nobody knows how a line was made."""
    written(path, "one").settings_file.unlink()
    with pytest.raises(InputError, match="unknown"):
        Journal(path, SETTINGS).resume()


@pytest.mark.parametrize("text", ["notes", "notes\nmore notes"])
def test_a_refused_file_stays_as_it_was(path: Path, text: str) -> None:
    """Somebody's own file may end without a line break, and is none of ours to cut."""
    path.write_text(text)
    journal = Journal(path, SETTINGS)
    journal.lines()
    with pytest.raises(InputError, match="unknown"):
        journal.resume()
    assert path.read_text() == text


def test_resuming_nothing_begins(path: Path) -> None:
    """A job may always be started with the same command."""
    journal = Journal(path, SETTINGS)
    assert journal.resume() == ()
    journal.add("one")
    journal.close()
    assert journal.lines() == ("one",)


def test_a_full_disk_is_said_in_a_sentence_also_when_the_file_is_closed(tmp_path: Path) -> None:
    """What could not be written is tried again then, and must not end in a traceback."""
    journal = Journal(Path("/dev/full"), SETTINGS, settings_file=tmp_path / "settings")
    journal.begin(overwrite=True)
    for fails in (lambda: journal.add("one"), journal.close):
        with pytest.raises(ConfigError, match="Cannot write /dev/full"):
            fails()
    journal.close()


def test_last_lines_can_be_dropped(path: Path) -> None:
    """The lines before them stay byte for byte."""
    journal = written(path, "é", "two", "three")
    journal.drop_last(2)
    assert path.read_bytes() == "é\n".encode()


def test_what_is_no_journal_says_so(path: Path, tmp_path: Path) -> None:
    """Broken settings, other encodings and places that cannot be written."""
    journal = written(path, "one")
    journal.settings_file.write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match="broken"):
        journal.resume()
    path.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="UTF-8"):
        journal.lines()
    with pytest.raises(ConfigError, match="Cannot write"):
        Journal(tmp_path / "no" / "x", SETTINGS).begin()
