"""Words of the forms that are judged are found again in the text as written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptguard.text import read_text
from promptguard.text.normalize import plain_letters_origins, strip_hidden
from promptguard.text.places import Form, original_spans

ODD = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab ßİ\u200b\u0301\u0323ﬁ１ｶﾞ각ᄀ\u1161가𝐢🅘é\u00a0\nі0@"), st.characters()
    ),
    max_size=60,
)


def _written(text: str, word: str, form: Form = Form.FOLDED) -> str:
    views = read_text(text)
    start = (views.folded if form is Form.FOLDED else views.plain).index(word)
    ((first, last),) = original_spans(text, [(start, start + len(word))], form=form)
    return text[first:last]


@pytest.mark.parametrize(
    ("text", "word", "written"),
    [
        ("  Please   IGNORE  this", "ignore this", "IGNORE  this"),
        ("now ig\u200bno\u200bre it", "ignore", "ig\u200bno\u200bre"),
        ("die STRAßE dort", "strasse", "STRAßE"),
        ("the ﬁle is", "file", "ﬁle"),
        ("so 𝐢𝐠𝐧𝐨𝐫𝐞 it", "ignore", "𝐢𝐠𝐧𝐨𝐫𝐞"),
        ("well i g n o r e the rest", "ignore", "i g n o r e"),
        ("how to m4k3 it", "make", "m4k3"),
        ("ｶﾞﾗｽの１番", "ガラス", "ｶﾞﾗｽ"),
        ("e\u0301te\u0301 ici", "été", "e\u0301te\u0301"),
        ("a b\u0300\u0301\u0302\u0303omb", "bomb", "b\u0300\u0301\u0302\u0303omb"),
    ],
)
def test_a_word_is_found_as_it_was_written(text: str, word: str, written: str) -> None:
    """Whatever was undone on the way, the span covers what the word was made of."""
    assert _written(text, word) == written


def test_a_span_of_the_plain_form_is_found_too() -> None:
    """Case is kept there, so that quoting it needs its own way back."""
    assert _written("x\u200b The Plan", "The Plan", Form.PLAIN) == "The Plan"


def test_a_word_after_the_cut_of_a_very_long_text_is_found() -> None:
    """Of a text beyond the bound the end is read, and its places are those of the whole."""
    text = "start " + "x" * 500 + " finish"
    ((start, end),) = original_spans(text, [(94, 100)], max_chars=100)
    assert text[start:end] == "finish"


@pytest.mark.parametrize("form", list(Form))
def test_a_word_after_the_cut_of_a_long_plain_form_is_found(form: Form) -> None:
    """Where letters become many, the end of the plain form is read and found again."""
    text = "\ufdfa" * 50 + " finish"
    views = read_text(text, max_chars=100)
    start = (views.folded if form is Form.FOLDED else views.plain).index("finish")
    ((first, last),) = original_spans(text, [(start, start + 6)], form=form, max_chars=100)
    assert text[first:last] == "finish"


@pytest.mark.parametrize("pile", ["\u0300" * 99, "\u0301\u0323" * 99, "\uff9e\u0301" * 99])
def test_a_word_after_a_pile_of_marks_is_found(pile: str) -> None:
    """However many marks were dropped, what follows keeps its place."""
    assert _written(f"so a{pile} bomb", "bomb") == "bomb"


@settings(max_examples=200)
@given(ODD)
def test_every_span_lies_in_the_text(text: str) -> None:
    """Each character of both forms has a source, in order and within the text."""
    views = read_text(text)
    for form, shown in ((Form.PLAIN, views.plain), (Form.FOLDED, views.folded)):
        spans = original_spans(text, [(at, at + 1) for at in range(len(shown))], form=form)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        starts = [start for start, _ in spans]
        assert starts == sorted(starts)


@settings(max_examples=200)
@given(ODD)
def test_the_traced_way_is_the_way_that_was_taken(text: str) -> None:
    """The edits lead to a text as long as the plain one: their segments end where it ends."""
    stripped = strip_hidden(text).text
    origins = [origin for origin in plain_letters_origins(stripped) if origin.starts]
    if origins:
        assert origins[0].starts[-1] == len(read_text(text).plain)
