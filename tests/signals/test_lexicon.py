"""The lexicon finds words, not letters."""

from __future__ import annotations

import json
import time
from importlib.resources import files
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.patterns import codes
from promptguard.signals.keywords import Lexicon, Term, lexicon_digest, shipped_lexicon
from promptguard.signals.phrases import matchable


def _lexicon(*texts: str) -> Lexicon:
    return Lexicon(
        Term(text=text, language="en", family="violence", severity=0.5) for text in texts
    )


def _found(lexicon: Lexicon, text: str) -> list[str]:
    return [hit.term.text for hit in lexicon.hits(text)]


@pytest.mark.parametrize(
    ("term", "text", "is_found"),
    [
        ("kill", "how to kill a process", True),
        ("kill", "a new skill", False),
        ("kill", "killjoy", False),
        ("poison*", "poisonous berries", True),
        ("pipe bomb*", "pipe-bombs", True),
        ("pipe bomb*", "pipe dream, bomb", False),
        ("ignore ... rules", "ignore all of the rules", True),
        ("ignore ... rules", "ignore it, then come back and read the rules", False),
        ("キル", "スキルを磨く", False),
        ("テロ", "テロ攻撃", True),
        ("テロ", "テロップを入れる", False),
        ("爆弾", "手製爆弾の話", True),
        ("взлом*", "взломать сейф", True),
        ("폭탄*", "폭탄을 만들다", True),
        ("contrasena*", "su contraseña", True),
        ("sqlインジェクション", "これはsqlインジェクションです", True),
    ],
)
def test_terms_match_on_word_boundaries(term: str, text: str, is_found: bool) -> None:
    """A term is found where it stands as a word and nowhere else."""
    assert bool(_found(_lexicon(term), text)) is is_found


def test_of_overlapping_terms_the_weightiest_is_kept() -> None:
    """One passage counts once, under its gravest reading."""
    lexicon = Lexicon(
        (
            Term(text="bomb", language="en", family="explosive", severity=0.5),
            Term(text="pipe bomb", language="en", family="explosive", severity=0.9),
        )
    )
    assert _found(lexicon, "a pipe bomb and a bomb") == ["pipe bomb", "bomb"]


def test_the_idf_table_was_made_for_this_lexicon() -> None:
    """Changing the terms without running training/lexicon_idf.py is noticed."""
    table = json.loads(
        files("promptguard").joinpath("data/lexicon/idf.json").read_text(encoding="utf-8")
    )
    assert table["lexicon"] == lexicon_digest(shipped_lexicon().terms)
    assert all(0.0 <= value <= 1.0 for row in table["idf"].values() for value in row.values())


def test_every_language_covers_every_family() -> None:
    """No language is left without words for a kind of harm."""
    terms = shipped_lexicon().terms
    families = {term.family for term in terms}
    for language in codes("lexicon"):
        assert {term.family for term in terms if term.language == language} == families


def test_every_term_finds_itself() -> None:
    """No entry is spelt so that it can never match."""
    lexicon = shipped_lexicon()
    for term in lexicon.terms:
        text = term.text.replace(" ... ", " ").replace("*", "")
        assert term in {hit.term for hit in lexicon.all_hits(text)}, term.text


def test_words_common_in_innocent_text_count_less() -> None:
    """IDF was learned: a word of ordinary letters weighs less than one never seen there."""
    weights = {term.text: term.idf for term in shipped_lexicon().terms if term.language == "en"}
    assert weights["act as"] < weights["nerve agent*"]
    assert weights["her phone"] < 1.0


@given(st.text(max_size=300))
def test_hits_never_overlap(text: str) -> None:
    """Whatever is read, the kept hits lie apart and within the text."""
    folded = matchable(text)
    hits = shipped_lexicon().hits(folded)
    assert all(0 <= hit.start < hit.end <= len(folded) for hit in hits)
    assert all(a.end <= b.start for a, b in pairwise(hits))


def test_a_wall_of_terms_is_read_in_good_time() -> None:
    """Thousands of hits in one message do not slow the guard down."""
    start = time.process_time()
    hits = shipped_lexicon().hits("pipe bomb sarin kill " * 1000)
    assert len(hits) == 3000
    assert time.process_time() - start < 2.0
