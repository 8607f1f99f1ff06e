"""What holds for every text, tried on texts that Hypothesis makes up."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fuzz.seeds import TOKENS
from promptguard.text.normalize import fold, nfkc, plain_letters, strip_hidden
from promptguard.text.places import Form, original_spans
from promptguard.text.read import decode, read_text
from promptguard.text.vocabulary import known_words, reads_like_language
from promptguard.text.windows import windows

PIECES = st.sampled_from([token.decode("utf-8", "replace") for token in TOKENS["text"]])
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=30).map("".join)
WORDS = st.sampled_from(sorted(word for word in known_words() if len(word) > 3 and word.isascii()))
SENTENCES = st.lists(WORDS, min_size=4, max_size=10, unique=True).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_views_are_well_formed(text: str) -> None:
    """Nothing is raised; views lie in the text, read like language and can be encoded."""
    views = read_text(text)
    for view in views.decoded:
        assert 0 <= view.start < view.end <= len(text)
        assert view.method == "several" or reads_like_language(view.text)
    for shown in (*views.texts, views.folded):
        shown.encode("utf-8")


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_reading_is_a_function_of_the_text(text: str) -> None:
    """The same text gives the same views, whatever was read before."""
    assert read_text(text) == read_text(text)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_normalising_again_changes_no_hidden_character(text: str) -> None:
    """What was stripped stays stripped, and what was folded stays folded."""
    stripped = strip_hidden(text).text
    assert strip_hidden(stripped).text == stripped
    folded = fold(plain_letters(stripped)[0])
    assert fold(folded) == folded
    assert nfkc(nfkc(text)) == nfkc(text)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_places_lie_in_the_text_and_in_order(text: str) -> None:
    """Every character of the folded form leads back to characters of the text."""
    folded = read_text(text).folded
    spans = original_spans(text, [(at, at + 1) for at in range(len(folded))], form=Form.FOLDED)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(8, 200))
def test_windows_give_the_text_back(text: str, size: int) -> None:
    """Laid side by side without what they share, the windows are the text."""
    found = list(windows(text, size, size // 8))
    ends = [0, *(window.end for window in found[:-1])]
    joined = "".join(
        window.text[end - window.start :] for window, end in zip(found, ends, strict=True)
    )
    assert joined == text


ENCODERS = {
    "base64": lambda raw: base64.b64encode(raw).decode(),
    "base32": lambda raw: base64.b32encode(raw).decode(),
    "ascii85": lambda raw: base64.a85encode(raw, adobe=True).decode(),
    "base85": lambda raw: base64.b85encode(raw).decode(),
    "hex": lambda raw: raw.hex(),
    "binary": lambda raw: " ".join(f"{byte:08b}" for byte in raw),
    "octal": lambda raw: "".join(f"\\{byte:03o}" for byte in raw),
    "percent": lambda raw: "".join(f"%{byte:02x}" for byte in raw),
    "html": lambda raw: "".join(f"&#{byte};" for byte in raw),
    "unicode": lambda raw: "".join(f"\\u{byte:04x}" for byte in raw),
    "quoted_printable": lambda raw: "".join(f"={byte:02X}" for byte in raw),
}


@pytest.mark.parametrize("method", ENCODERS)
@settings(max_examples=25, deadline=None)
@given(SENTENCES)
def test_what_was_encoded_is_decoded(method: str, sentence: str) -> None:
    """Any sentence of known words survives the way there and back."""
    encoded = ENCODERS[method](sentence.encode())
    assert (method, sentence) in [(view.method, view.text) for view in decode(encoded)]


# What is unwrapped is made plain before it is decoded further, and loses letters of these by it.
OUTERMOST = frozenset({"ascii85", "base85"})


@settings(max_examples=40, deadline=None)
@given(SENTENCES, st.lists(st.sampled_from(sorted(ENCODERS)), min_size=2, max_size=4))
def test_encodings_within_encodings_are_undone(sentence: str, methods: list[str]) -> None:
    """Whatever wraps whatever, the sentence comes out; `docs/limits.md` names two exceptions."""
    assume(OUTERMOST.isdisjoint(methods[:-1]))
    text = sentence
    for method in methods:
        text = ENCODERS[method](text.encode())
    assert sentence in [view.text for view in decode(text)]


@pytest.mark.parametrize("seed", range(20))
def test_noise_hides_nothing(seed: int) -> None:
    """Random printable characters are never taken for language."""
    source = random.Random(seed)
    noise = "".join(chr(source.randrange(33, 127)) for _ in range(2000))
    assert decode(noise) == ()
