"""Topic files."""

import pytest
import yaml
from scripted_targets import topic

from promptguard.errors import DataError
from promptguard.probe.topics import load_topics, shipped_topics, topic_from

GOOD = {
    "id": "bread",
    "question": "Should bread be free?",
    "arguments_for": ["a", "b"],
    "arguments_against": ["c", "d"],
    "edge_cases": ["e", "f"],
    "stakeholders": ["g", "h"],
}


def test_the_shipped_topics_are_many_and_distinct() -> None:
    """At least ten, in two languages, none twice."""
    topics = shipped_topics()
    assert len(topics) >= 10
    assert {one.language for one in topics} == {"en", "ja"}
    assert len({one.topic_id for one in topics}) == len(topics)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "bread.yaml: id"),
        ({"question": "Bread is good."}, "question must be a question"),
        ({"question": 3}, "question must be a text"),
        ({"edge_cases": ["one"]}, "edge_cases must list at least two"),
        ({"stakeholders": ["one", ""]}, "stakeholders must be a text"),
        ({"arguments_for": None}, "arguments_for"),
        ({"extra": 1}, "unknown fields: extra"),
    ],
)
def test_a_broken_topic_names_file_and_field(change, message) -> None:
    """The error says where to look."""
    with pytest.raises(DataError, match=message):
        topic_from(yaml.safe_dump(GOOD | change), name="bread.yaml")


@pytest.mark.parametrize(
    "text", ["[1", "- a", "", "text", "id: 2026-02-30", 'id: !!int ""', "id: !!timestamp a"]
)
def test_what_is_no_mapping_is_refused(text) -> None:
    """A topic is a YAML mapping."""
    with pytest.raises(DataError, match=r"bread\.yaml"):
        topic_from(text, name="bread.yaml")


def test_files_and_folders_are_read_together(tmp_path) -> None:
    """A folder gives all its YAML files."""
    for name in ("bread", "water"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(GOOD | {"id": name}))
    other = tmp_path / "other.txt"
    other.write_text(yaml.safe_dump(GOOD | {"id": "music"}))
    assert [one.topic_id for one in load_topics([tmp_path, other])] == ["bread", "water", "music"]


def test_repeated_unreadable_or_absent_topics_are_errors(tmp_path) -> None:
    """Nothing is dropped silently."""
    with pytest.raises(DataError, match="no topic files"):
        load_topics([tmp_path])
    file = tmp_path / "bread.yaml"
    file.write_text(yaml.safe_dump(GOOD))
    with pytest.raises(DataError, match="repeats"):
        load_topics([file, file])
    file.write_bytes(b"\xff")
    with pytest.raises(DataError, match="UTF-8"):
        load_topics([file])


def test_topics_are_values() -> None:
    """Equal topics are equal."""
    assert topic("bread") == topic("bread")
