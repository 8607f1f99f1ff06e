"""One form for every file of patterns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from promptguard.errors import DataError
from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.parameters import read_parameters
from promptguard.fil.rules import checked, rule_packs
from promptguard.patterns import PatternSet, any_of, codes, packs, parse_pack
from promptguard.patterns.pack import Form, spell_out
from promptguard.text import read_text

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = ("rules", "structure", "phrases", "lexicon", "rubric", "stopwords")
SOURCE = """
language = "xx"
version = 1
form = "lines"
scripts = ["latin"]
[lists]
fruit = "apples?|pears?"
[[entry]]
id = "xx-eat"
kind = "meal"
weight = 0.5
pattern = ["eat ~{fruit}", "bite into {fruit}"]
match = ["eat an apple"]
clean = ["eat bread"]
"""


def test_entries_are_spelled_out_and_compiled() -> None:
    """Lists, gaps and word boundaries are RE2 once a pack is read."""
    pack = parse_pack(SOURCE, "xx")
    (entry,) = pack.entries
    pattern = any_of(pack.entries)
    for text in ("eat an apple", "eat two small pears", "bite into apples"):
        assert pattern.search(text), text
        assert PatternSet(pack.entries).match(text) == (entry,)
    for text in ("beat apple", "eat bread", "eat it. an apple"):
        assert pattern.search(text) is None, text
    assert (entry.kind, entry.weight, entry.language) == ("meal", 0.5, "xx")
    assert pack.of_kind("meal") == (entry,)
    assert pack.of_kind("supper") == ()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('kind = "meal"', 'kind = "meal"\ncolour = "red"', "xx-eat.colour"),
        ("weight = 0.5", 'weight = "heavy"', "xx-eat.weight"),
        ('form = "lines"', 'form = "verse"', "form"),
        ('match = ["eat an apple"]', "", "no example"),
        ('pattern = ["eat ~{fruit}", "bite into {fruit}"]', "", "neither"),
        ("{fruit}", "{bread}", "bread"),
        ("[lists]", "[lists", "TOML"),
        ("version = 1", "version = 1" + "0" * 5000, "TOML"),
        ("version = 1", "version = " + "[" * 5000, "TOML"),
        ('id = "xx-eat"', "", "entry 0.id"),
    ],
)
def test_every_fault_is_named(old: str, new: str, fault: str) -> None:
    """The author of a pack learns which entry and which field is wrong."""
    with pytest.raises(DataError, match=fault):
        parse_pack(SOURCE.replace(old, new), "xx")


@pytest.mark.parametrize("section", SECTIONS)
def test_identifiers_are_unique_in_a_section(section: str) -> None:
    """An id names one entry, and says its language."""
    ids = [entry.id for pack in packs(section) for entry in pack.entries]
    assert len(ids) == len(set(ids))
    for pack in packs(section):
        assert all(entry.id.startswith(f"{pack.language}-") for entry in pack.entries)


def test_eight_languages_have_every_section_but_the_rubric() -> None:
    """A bundled language is complete; the rubric covers six."""
    for section in SECTIONS[:4]:
        assert set(codes(section)) - {"any"} == {"en", "ja", "zh", "ko", "es", "fr", "de", "ru"}


def test_an_unknown_language_is_refused() -> None:
    """Asking for a language that is not there is an error, not an empty answer."""
    with pytest.raises(DataError, match="tlh"):
        rule_packs(["tlh"])


def test_a_long_gap_reaches_over_sentences() -> None:
    """`~~~` is any distance, `~` stays within its sentence."""
    near = spell_out("a ~z", Form.WORDS, {}, frozenset())
    far = spell_out("a ~~~z", Form.WORDS, {}, frozenset())
    assert re.search(far, " a b \n c d e f g z ")
    assert not re.search(near, " a b \n z ")


def test_the_documented_language_works() -> None:
    """The example on the page on extending is a pack that does what it says."""
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    source = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert source is not None
    english = rule_packs(["en"])
    pack = checked(parse_pack(source[1], "eo"))
    layer = FrozenInstinct([*english, pack], read_parameters())
    (entry,) = pack.entries
    for text in entry.violates:
        assert entry.id in layer.assess(read_text(text), now=0.0).rule_ids
    for text in entry.innocent:
        assert layer.assess(read_text(text), now=0.0).violated == ()
