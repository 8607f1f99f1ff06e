"""Concepts are found across languages, on word boundaries, in good time."""

from __future__ import annotations

import time

import pytest

from promptguard.errors import DataError
from promptguard.patterns.pack import letters
from promptguard.patterns.wordlist import Concepts, WordList, parse_concepts

TINY = Concepts(
    (
        {"lock": ["lock", "locks", "padlock*"], "open": ["pick open", "break ... open"]},
        {"lock": ["錠", "南京錠"], "open": ["こじ開け"]},
        {"lock": ["serrure*", "forçage"], "key": ["clé"]},
        {"lock": ["กุญแจ"]},
        {"lock": ["ताला"], "key": ["चाब*"]},
        {"lock": ["замок*"], "castle": ["замок*"]},
    )
)


@pytest.mark.parametrize(
    ("text", "concepts"),
    [
        ("the lock is old", {"lock"}),
        ("a clock and a locksmith", set()),
        ("two padlocks", {"lock"}),
        ("pick open the locks", {"lock", "open"}),
        ("break it quietly open", {"open"}),
        ("break it and then leave the door open", set()),
        ("この南京錠をこじ開ける", {"lock", "open"}),
        ("les serrures", {"lock"}),
        ("la clé du forçage", {"lock", "key"}),
        ("เปิดกุญแจอย่างไร", {"lock"}),
        ("ताला और चाबियाँ", {"lock", "key"}),
        ("तालाब", set()),
        ("старый замок", {"lock", "castle"}),
        ("", set()),
    ],
)
def test_words_of_every_script_are_found(text: str, concepts: set[str]) -> None:
    """Spaced scripts match whole words and stems, the others the letters themselves."""
    assert set(TINY.match(text)) == concepts


def test_places_are_given_in_order() -> None:
    """Each concept comes with where it stands."""
    assert TINY.match("lock, padlock, lock") == {"lock": ((0, 4), (6, 13), (15, 19))}
    assert TINY.match("南京錠")["lock"] == ((0, 3), (2, 3))


def test_places_are_those_of_the_folded_text() -> None:
    """A ligature is spelled with two letters and is one character all the same."""
    concepts = Concepts([{"organ": ["cœur"], "lock": ["lock"]}])
    assert concepts.match("sœur, coeur, cœur, lock") == {
        "organ": ((6, 11), (13, 17)),
        "lock": ((19, 23),),
    }


def test_a_single_letter_is_found_once_wherever_it_stands() -> None:
    """At the end of a text too, where no second letter follows."""
    words = WordList([("毒", "poison"), ("毒薬", "potion")], letters)
    assert [hit.start for hit in words.find("毒の毒")] == [0, 2]
    assert [hit.term for hit in words.find("毒薬")] == ["poison", "potion"]


@pytest.mark.parametrize(
    ("source", "fault"),
    [("[concepts", "TOML"), ("[words]\na = []", "concepts"), ('[concepts]\na = "*"', "empty")],
)
def test_a_broken_file_is_named(source: str, fault: str) -> None:
    """The author learns what is wrong."""
    with pytest.raises(DataError, match=fault):
        parse_concepts(source, "xx.toml")


def test_many_concepts_cost_little() -> None:
    """Twenty thousand words and a text of 300 characters: well under a millisecond each."""
    words = {f"c{n // 200}": [f"word{n + k}x" for k in range(200)] for n in range(0, 20_000, 200)}
    concepts = Concepts((words, {"tale": ["tale*", "story ... end"]}))
    text = ("the tale of word17x and other words " * 9)[:300]
    assert set(concepts.match(text)) == {"c0", "tale"}
    start = time.process_time()
    for _ in range(100):
        concepts.match(text)
    assert time.process_time() - start < 0.2


def test_time_grows_with_the_text_only() -> None:
    """A hundred thousand characters of near misses are read in good time."""
    text = "break it and then " * 6_000 + "南京" * 5_000
    start = time.process_time()
    assert TINY.match(text) == {}
    assert time.process_time() - start < 2.0
