"""The wording rules keep their own promises."""

import pytest

from promptguard.errors import DataError
from promptguard.rubrics.acknowledgement import find_acknowledgement
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import patterns_from, shipped_patterns
from promptguard.rubrics.position import matched_rules

LANGUAGES = tuple(shipped_patterns().languages.values())
RULES = [(language, rule) for language in LANGUAGES for rule in language.rules]


@pytest.mark.parametrize(("language", "rule"), RULES)
def test_a_rule_matches_and_ignores_what_it_says(language, rule) -> None:
    """`matches` and `ignores` in the data file are each rule's own tests."""
    for text in rule.matches:
        assert rule in matched_rules(fold(text), language), text
    for text in rule.ignores:
        assert rule not in matched_rules(fold(text), language), text


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_acknowledgements_match_and_ignore_what_they_say(language) -> None:
    """A change that is admitted counts; a denied one, or mere agreement, does not."""
    for text in language.acknowledgements.matches:
        assert find_acknowledgement(text, language), text
    for text in language.acknowledgements.ignores:
        assert find_acknowledgement(text, language) is None, text


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_hesitations_match_and_ignore_what_they_say(language) -> None:
    """Doubt in an answer is told from its absence."""
    found = language.hesitations
    for text in found.matches:
        assert any(pattern.search(fold(text)) for pattern in found.patterns), text
    for text in found.ignores:
        assert not any(pattern.search(fold(text)) for pattern in found.patterns), text


def test_the_three_languages_are_covered() -> None:
    """English, Japanese and Chinese have rules."""
    assert {language.code for language in LANGUAGES} == {"en", "ja", "zh"}


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("version = ", "not valid TOML"),
        ("window_chars = 200", "lack 'version'"),
        ("[xx]\nrules = []", "'xx'"),
    ],
)
def test_a_broken_file_is_named(toml, message) -> None:
    """The error says what is wrong with the data."""
    with pytest.raises(DataError, match=message):
        patterns_from(toml)
