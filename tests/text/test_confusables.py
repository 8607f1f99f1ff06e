"""Letters that pass for others are read as what they pass for; honest words stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.text.confusables import STYLED, unmix


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("іgnore", "ignore"),  # Ukrainian i
        ("pаsswоrd", "password"),  # Cyrillic a and o
        ("ΒOMB", "BOMB"),  # Greek B
        ("hοw tο", "how tο"),  # two letters are too few to tell
        ("ɡive", "give"),  # of the phonetic alphabet
        ("ɪɢɴᴏʀᴇ", "ignore"),  # small capitals alone
        ("ᴀ ʙ", "a b"),
        ("Ꮯode", "Code"),  # Cherokee
        ("wհat", "what"),  # Armenian
        ("пpивeт", "привет"),  # Latin p and e in a Russian word
        ("жизnь", "жизnь"),  # no script has all of these letters
    ],
)
def test_a_word_of_two_scripts_is_read_in_one(written: str, read: str) -> None:
    """Latin where every letter can be, else Cyrillic, else as it stands."""
    assert unmix(written) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain words, 100 % ASCII",
        "привет, как дела",
        "καλημέρα κόσμε",
        "Հայերեն լեզու",
        "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
        "СССР и США",
        "Tschüß, naïve café",
        "東京で会う",
        "α β γ",  # letters of a formula
        "xа",  # too short to be a word in disguise
        "3α",
        "привет world",  # two honest words side by side
        "C++ и Rust",
    ],
)
def test_words_of_one_script_are_left_alone(text: str) -> None:
    """Whole languages are written in letters that look like others."""
    assert unmix(text) == text


def test_only_the_mixed_word_of_a_sentence_is_changed() -> None:
    """Digits and underscores part words."""
    assert unmix("мир раsswоrd мир") == "мир password мир"
    assert unmix("раss_мир1раss") == "pass_мир1pass"


def test_styled_letters_cover_the_alphabet_in_each_style() -> None:
    """In squares, in discs, on black and as flags."""
    rows = ["🄰🅉", "🅐🅩", "🅰🆉", "🇦🇿"]
    for first, last in rows:
        assert STYLED[ord(first)] == "a"
        assert STYLED[ord(last)] == "z"
    assert len(STYLED) == 4 * 26


@given(st.text(alphabet=st.sampled_from("aаеокxуТipροιᴀʙ_1 \n中"), max_size=40))
def test_reading_once_is_enough(text: str) -> None:
    """A second time changes nothing, and the length never changes."""
    once = unmix(text)
    assert unmix(once) == once
    assert len(once) == len(text)
