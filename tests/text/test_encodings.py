"""An encoding is undone where it is whole, and broken ones are nothing rather than an error."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.text.encodings import ENCODINGS, Encoding

BY_NAME = {encoding.name: encoding for encoding in ENCODINGS}
SECRET = "please tell me the plan"


def undone(name: str, written: str) -> str | None:
    return BY_NAME[name].undo(written)


@pytest.mark.parametrize(
    ("name", "written", "plain"),
    [
        ("base64", "cGxhbg==", "plan"),
        ("base64", "cGxhbg", "plan"),  # padding is often lost
        ("base64", "cGxh\r\nbg==", "plan"),  # lines of a mail
        ("base64", "cGxhbgA", "plan\x00"),
        ("base64", "_____w", None),  # no text in any charset
        ("base64_pieces", "cGxhbg== Yg==", "plan b"),
        ("base64_pieces", "cGxhbg== /w== Yg==", None),
        ("base32", base64.b32encode(SECRET.encode()).decode(), SECRET),
        ("base32", base64.b32encode(bytes(range(128, 160))).decode(), None),
        ("ascii85", base64.a85encode(SECRET.encode(), adobe=True).decode(), SECRET),
        ("ascii85", "<~" + "s8W-!" * 4 + "~>", None),  # all bytes 255
        ("base85", base64.b85encode(SECRET.encode()).decode(), SECRET),
        ("base85", f'"{base64.b85encode(SECRET.encode()).decode()}"', SECRET),
        ("base85", "~" * 20, None),  # more than 32 bits in a group
        ("hex", "706c616e", "plan"),
        ("hex", "0x70,0x6c:61 6e", "plan"),
        ("hex", "706c616e7", "plan"),  # half a byte at the end
        ("hex", "ff" * 6, None),
        ("hex", "70006c0061006e00" * 2, "planplan"),  # two bytes a letter
        ("hex", "0070006c0061006e" * 2, "planplan"),
        ("binary", "01110000 01101100 01100001 01101110", "plan"),
        ("binary", "0111000001101100011", None),
        ("decimal", "112 108 97 110", "plan"),
        ("decimal", "112 108 31 110", None),  # a control character
        ("decimal", "112 127", None),
        ("octal", "160 154 141 156", "plan"),
        ("octal", "0o160, 0o154, 0o141, 0o156", "plan"),
        ("octal", "44 45 46 47 50 51 52 53", None),  # signs only: decimal numbers, more likely
        ("letter_numbers", "16-12-5-1-19-5 20-5-12-12 13-5 20-8-5 16-12-1-14", SECRET),
        ("letter_numbers", "16-12-5-1-19-5 20-5-12-12", None),  # two words are no sentence
        ("letter_numbers", "16-12-27-1-19-5 20-5-12-12", None),
        ("letter_numbers", "24-24-24-24-24-24-24-24-24", None),
        ("morse", ".--. .-.. .- -.", "plan"),
        ("morse", "·−−· ·−·· ·− −·", "plan"),
        ("morse", ".--. .-.-.-.- .-", None),
        ("morse", ". / . | .", "e e e"),
        ("braille", "⠏⠇⠁⠝", "plan"),
        ("braille", "⠏⠇⠁⠝⣿", None),
        ("nato", "papa lima alfa november space oscar kilo", "plan ok"),
        ("nato", "PAPA LIMA", None),
        ("nato", "x-ray xray x-ray / xray x-ray xray", "xxx xxx"),
    ],
)
def test_each_encoding_at_its_edges(name: str, written: str, plain: str | None) -> None:
    """Lost padding, odd lengths, digits out of range, bytes that are no text."""
    assert undone(name, written) == plain


def test_names_are_told_apart_and_narrow_alphabets_come_first() -> None:
    """Whatever is binary would pass for octal, hexadecimal and base64 too."""
    names = [encoding.name for encoding in ENCODINGS]
    assert len(set(names)) == len(names)
    order = [names.index(name) for name in ("binary", "octal", "hex", "base32", "base64", "base85")]
    assert order == sorted(order)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
@given(data=st.data())
def test_whatever_the_pattern_finds_can_be_tried(encoding: Encoding, data: st.DataObject) -> None:
    """Undoing gives a text or nothing; it never raises, and hints do not lie."""
    written = data.draw(st.from_regex(encoding.pattern))
    match = encoding.pattern.search(written)
    assert match is not None
    plain = encoding.undo(match[0])
    assert plain is None or isinstance(plain, str)
    assert sum(char.isdigit() for char in match[0]) >= (
        encoding.min_digits if encoding.name in ("binary", "decimal", "letter_numbers") else 0
    )


@pytest.mark.parametrize(
    "text",
    [
        "The meeting on 12-05-2024 is at 10:30.",
        "Call +49 30 1234567 or write to us.",
        "See section 3.1.4, tables 5, 6 and 7.",
        "def main() -> None: ...",
        "Wait... - - - and so on.",
        "Romeo and Juliet",
    ],
)
def test_ordinary_text_fits_no_pattern(text: str) -> None:
    """Dates, numbers, code and dashes are not even tried."""
    assert [each.name for each in ENCODINGS if each.pattern.search(text)] == []
