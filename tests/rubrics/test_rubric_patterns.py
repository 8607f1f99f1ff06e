"""The wordings keep their own promises."""

import re

import pytest

from promptguard.errors import DataError
from promptguard.patterns import Entry, packs, parse_pack
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import Statement, patterns_from, shipped_patterns
from promptguard.rubrics.position import matched_wordings
from promptguard.rubrics.turns import find_acknowledgement

LANGUAGES = tuple(shipped_patterns().languages.values())
WORDINGS = [
    pytest.param(language, wording, id=wording.entry.id)
    for language in LANGUAGES
    for wording in language.wordings
]
GROUPS = [
    pytest.param(group, id=group.entry.id)
    for language in LANGUAGES
    for group in (
        language.hesitation,
        *language.questions.values(),
        *language.denials.values(),
        *language.pressure.values(),
        *language.echoes.values(),
        *language.wanted.values(),
    )
]


@pytest.mark.parametrize(("language", "wording"), WORDINGS)
def test_a_wording_matches_and_ignores_what_it_says(language, wording) -> None:
    """`match` and `clean` in the data file are each entry's own tests."""
    assert wording.entry.clean
    for text in wording.entry.match:
        assert wording in matched_wordings(fold(text), language), text
    for text in wording.entry.clean:
        assert wording not in matched_wordings(fold(text), language), text


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_acknowledgements_match_and_ignore_what_they_say(language) -> None:
    """A change that is admitted counts; a denied one, or mere agreement, does not."""
    for text in language.acknowledgement.entry.match:
        assert find_acknowledgement(text, language), text
    for text in language.acknowledgement.entry.clean:
        assert find_acknowledgement(text, language) is None, text


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_matches_and_ignores_what_it_says(group) -> None:
    """Questions, doubts and denials are told by their own examples."""
    assert group.entry.clean
    for text in group.entry.match:
        assert group.fits(fold(text)), text
    for text in group.entry.clean:
        assert not group.fits(fold(text)), text


def test_six_languages_are_covered() -> None:
    """Each has every kind of wording that takes a side, and words with an opposite."""
    assert {language.code for language in LANGUAGES} == {"en", "ja", "zh", "de", "fr", "es"}
    kinds = {wording.kind for wording in LANGUAGES[0].wordings} - {"claim"}
    for language in LANGUAGES:
        assert {wording.kind for wording in language.wordings} >= kinds


def _english(old: str, new: str) -> str:
    from importlib.resources import files

    path = files("promptguard").joinpath("data/lang/en/rubric.toml")
    source = path.read_text(encoding="utf-8")
    assert old in source
    return source.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 6", "version = ", "not valid TOML"),
        ("version = 6", "", "version"),
        ('name = "asks"', 'name = "begs"', "needs all of asks, stop"),
        ('kind = "hesitation"', 'kind = "doubt"', "hesitation"),
        ('id = "en-yes"\nkind = "lead"\nname = "yes"', 'id = "en-yes"\nkind = "lead"', "no side"),
        ("{stop}", "{halt}", "halt"),
        ("adore|prefer)\\b(.+)", "adore|prefer)\\b(.)(.+)", "en-likes has several groups"),
        ('name = "yields"', 'name = "gives"', "needs all of presses, supposes"),
    ],
)
def test_a_broken_file_is_named(old, new, message) -> None:
    """The error says what is wrong with the data."""
    with pytest.raises(DataError, match=message):
        patterns_from([parse_pack(_english(old, new), "en/rubric.toml")])


def test_a_group_that_takes_no_part_in_a_match_tells_nothing() -> None:
    """One of two alternatives may lack the thing that the fact is on."""
    entry = Entry(id="en-x", kind="fact", language="en", name="like")
    wording = Statement(entry=entry, patterns=(re.compile("i like (.+)|me too"),), unless=None)
    assert wording.on("i like tea") == "tea"
    assert wording.on("me too") == ""


def test_words_of_other_languages_are_known() -> None:
    """Without them a Portuguese text would be read as Spanish."""
    (other,) = packs("rubric", ["any"])
    assert other.of_kind("foreign")
    assert "não" not in shipped_patterns().foreign_words
    assert "nao" in shipped_patterns().foreign_words
