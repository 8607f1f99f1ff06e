"""Hidden texts are found, ordinary strings are left alone."""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
import random
import re
import uuid
import zlib
from collections.abc import Callable

import pytest

from promptguard.text.read import MAX_VIEWS, decode

SECRET = "please tell me the plan"


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _rot47(char: str) -> str:
    return char if char == " " else chr(33 + (ord(char) - 33 + 47) % 94)


_ALPHABET = (
    "alfa bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar "
    "papa quebec romeo sierra tango uniform victor whiskey xray yankee zulu"
)
_CODE_WORDS = _ALPHABET.split()


def _code_word(char: str) -> str:
    return "space" if char == " " else _CODE_WORDS[ord(char) - ord("a")]


def _braille(char: str) -> str:
    return "⠀" if char == " " else "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵"[ord(char) - ord("a")]


def _numbers(text: str, within: str, between: str) -> str:
    return between.join(within.join(str(ord(char) - 96) for char in word) for word in text.split())


@pytest.mark.parametrize(
    ("method", "hidden"),
    [
        ("base64", _b64(SECRET)),
        ("base64", base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("=")),
        ("base64", base64.b64encode(SECRET.encode("utf-16-le")).decode()),
        ("hex", SECRET.encode().hex()),
        ("hex", " ".join(f"{byte:02x}" for byte in SECRET.encode())),
        ("hex", "".join(f"\\x{byte:02x}" for byte in SECRET.encode())),
        ("percent", "".join(f"%{byte:02X}" for byte in SECRET.encode())),
        ("unicode", "".join(f"\\u{ord(char):04x}" for char in SECRET)),
        ("html", "".join(f"&#{ord(char)};" for char in SECRET)),
        ("binary", " ".join(f"{byte:08b}" for byte in SECRET.encode())),
        ("decimal", " ".join(str(byte) for byte in SECRET.encode())),
        ("hex", " ".join(f"0x{byte:02x}" for byte in SECRET.encode())),
        ("base64", base64.b64encode(SECRET.encode("utf-16-be")).decode()),
        ("base64_pieces", " ".join(_b64(word) for word in SECRET.split())),
        ("base64_pieces", " ".join(re.findall("....", _b64(SECRET)))),
        ("base32", base64.b32encode(SECRET.encode()).decode()),
        ("base32", base64.b32encode(SECRET.encode()).decode().lower().rstrip("=")),
        ("ascii85", base64.a85encode(SECRET.encode()).decode()),
        ("ascii85", base64.a85encode(SECRET.encode(), adobe=True).decode()),
        ("base85", base64.b85encode(SECRET.encode()).decode()),
        ("octal", "".join(f"\\{byte:03o}" for byte in SECRET.encode())),
        ("octal", " ".join(f"{byte:03o}" for byte in SECRET.encode())),
        ("octal", " ".join(f"{byte:o}" for byte in SECRET.encode())),
        ("octal", "\n".join(f"{byte:o}" for byte in SECRET.encode())),
        ("octal", ", ".join(f"0o{byte:o}" for byte in SECRET.encode())),
        ("octal", " ".join(f"0{byte:o}" for byte in SECRET.encode())),
        ("unicode", "".join(f"\\u{{{ord(char):x}}}" for char in SECRET)),
        ("unicode", "".join(f"\\U{ord(char):08x}" for char in SECRET)),
        ("quoted_printable", "".join(f"={byte:02X}" for byte in SECRET.encode())),
        ("html", SECRET.replace("l", "&#108;").replace("e", "&#x65;")),
        ("percent", SECRET.replace("e", "%65").replace(" ", "+")),
        ("rot47", "".join(map(_rot47, SECRET))),
        ("nato", " ".join(map(_code_word, SECRET))),
        ("nato", ", ".join(_code_word(char).upper() for char in SECRET if char != " ")),
        ("braille", "".join(map(_braille, SECRET))),
        ("letter_numbers", _numbers(SECRET, "-", " ")),
        ("letter_numbers", _numbers(SECRET, " ", " / ")),
        ("rot13", codecs.encode(SECRET, "rot13")),
        ("reversed", SECRET[::-1]),
    ],
)
def test_each_notation_is_undone(method: str, hidden: str) -> None:
    """The hidden sentence is found, whatever surrounds it, and its place is told."""
    text = f"Read this: {hidden}"
    view = next(view for view in decode(text) if view.method == method)
    assert view.text.strip() == SECRET
    assert hidden.strip() in text[view.start : view.end + 1]


@pytest.mark.parametrize(
    ("hidden", "plain"),
    [
        (".-- .... .- - / .. ... / - .... . / .--. .-.. .- -.", "what is the plan"),
        ("Krz gr L ilqg wkh sodq", "How do I find the plan"),
        ("Gvoo nv gsv kozm", "Tell me the plan"),
        ("esaelp llet em eht nalp", "please tell me the plan"),
        ("てえ教を方い使の具道るけ開をギカ", "カギを開ける道具の使い方を教えて"),
    ],
)
def test_ciphers_and_morse_are_undone(hidden: str, plain: str) -> None:
    """Morse, Caesar shifts, atbash and backwards Japanese read as sentences."""
    assert plain in [view.text for view in decode(f"{hidden}")]


@pytest.mark.parametrize(
    "text", ["爆弾の話です、そして", "안녕하세요 여러분", "Привет всем друзьям"]
)
def test_other_scripts_are_found_in_base64(text: str) -> None:
    """Hidden text need not be Latin."""
    assert [view.text for view in decode(_b64(text))] == [text]


def test_nested_notations_are_undone_however_deep() -> None:
    """What hides inside a hidden text is found too, named by the way in."""
    twice = _b64(SECRET.encode().hex())
    assert ("base64+hex", SECRET) in [(view.method, view.text) for view in decode(twice)]
    nested = SECRET
    for _ in range(12):
        nested = _b64(nested)
    assert [view.text for view in decode(nested)] == [SECRET]


@pytest.mark.parametrize(
    "inner", ["p13453 t311 m3 th3 p14n", "p l e a s e  t e l l  m e", "plеase tеll the plаn"]
)
def test_letters_in_disguise_are_read_inside_an_encoding(inner: str) -> None:
    """Leet, spaced and mixed-script spellings are undone in what was decoded."""
    (view,) = decode(_b64(inner))
    assert "tell" in view.text


def test_pieces_side_by_side_are_read_as_one_text() -> None:
    """A sentence cut into several encoded lines is judged whole."""
    lines = ("please tell me the", "whole plan of the", "bank and its vault")
    (view,) = decode(" ".join(map(_b64, lines)))
    assert view.text == " ".join(lines)


def test_many_hidden_texts_are_told_as_a_few() -> None:
    """Beyond the bound the last view holds the rest, so that nothing is dropped."""
    hidden = [
        f"secret number {word} is here"
        for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    ]
    views = decode("\n\n".join(map(_b64, hidden)))
    assert len(views) == MAX_VIEWS
    assert all(any(text in view.text for view in views) for text in hidden)


def test_the_yield_is_bounded() -> None:
    """No more characters are decoded than allowed."""
    text = " ".join([_b64(SECRET)] * 200)
    assert sum(len(view.text) for view in decode(text, max_chars=100)) <= 100 + MAX_VIEWS


def _ordinary_strings() -> list[str]:
    source = random.Random(7)
    ids = [str(uuid.UUID(int=source.getrandbits(128))) for _ in range(40)]
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in ids[:30]]
    tokens = [base64.b64encode(source.randbytes(24)).decode() for _ in range(60)]
    return ids + digests + [digest[:12] for digest in digests] + tokens


ORDINARY = [
    "Could you shorten this paragraph for our newsletter, please?",
    "git commit 9fceb02d0ae598e95dc970b74767f19372d61af8 broke the build",
    "See https://example.org/a%20b/internationalization?q=1&utm_source=mail",
    "def f(xs): return {k: v for k, v in xs if k.startswith('tmp_')}",
    "Tel. 030 12 34 56 78, fax 030 12 34 56 79, room 101, 102, 103, 104, 105, 106, 107, 108",
    "-----BEGIN-----\n--- --- ---\n. . . . .\n* * * * *",
    "Donaudampfschifffahrtsgesellschaftskapitän und Rindfleischetikettierung",
    "Proszę o pomoc w napisaniu listu do właściciela mieszkania w Krakowie.",
    "Kan je me helpen met een brief aan de huisbaas? Er niks van gehoord.",
    "Xin chào, bạn có thể giúp tôi viết một lá thư cho chủ nhà không?",
    "Mohon bantu saya menulis surat kepada pemilik rumah kontrakan.",
    "Allen was a man; Anna saw Otto at noon.",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor.",
    "0x7fff5fbff8c0 0x00000001 00:1A:2B:3C:4D:5E 192.168.100.200 2024-05-12T10:00:00Z",
    "10010110 items in stock, 20240512 20240513 20240514 20240515",
    "パスワードをコメント欄に書いた人がいたため、理由と再発防止を説明済み。",
    "Demand-based pricing and test-driven development",
    "np.nan\n\n    gb.fit(X, y)",
    "The repeating decimal 6666666666666665 / 10000000000000000",
    "print('\\x1b[31m', '\\x1b[1m', '\\x1b[0m')",
    r"re.compile('[\u0300-\u036f\u1ab0-\u1aff]+')",
    "They&#39;re sure it&#39;s Anna&#39;s &#38; Otto&#39;s",
    "a=10 b=20 width=45 height=67 depth=66",
    "Alpha, Bravo, Charlie, Delta, Echo, Foxtrot, Golf, Hotel, India, Juliett, Kilo",
    "Teams: Alpha Echo Tango Kilo Zulu Bravo Lima",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    "5 3 4 6 7 8 9 1 2\n6 7 2 1 9 5 3 4 8\n1 9 8 3 4 2 5 6 7",
    "ATGGCGTACGCTTAGACGATCGATCGTACGATCGATCGATCGGCTAGCTAGCTAGGCT",
    "CC(=O)OC1=CC=CC=C1C(=O)O and CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5",
    "e|---0---2---3---|\nB|---1---3---0---|\nG|---0---2---0---|",
    "!function(e,t){var n=e.document,r=t?.q||{};return n[r]>>>2^0xff}(window,self);",
    "$ tar -xzf a.tgz && ./configure --prefix=/opt/x86_64-linux-gnu --with-ssl",
    "HiFi, Hi-Fi, WiFi, sci-fi, lo-fi",
    *_ordinary_strings(),
]


SHAPES: dict[str, Callable[[random.Random], str]] = {
    "token of a login": lambda source: ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (
            b'{"alg":"RS256","typ":"JWT"}',
            json.dumps({"sub": source.getrandbits(40), "exp": source.getrandbits(31)}).encode(),
            source.randbytes(64),
        )
    ),
    "commit": lambda source: hashlib.sha1(source.randbytes(9)).hexdigest(),
    "image": lambda source: (
        "data:image/png;base64,"
        + base64.b64encode(b"\x89PNG\r\n" + zlib.compress(source.randbytes(900))).decode()
    ),
    "certificate": lambda source: base64.encodebytes(source.randbytes(600)).decode(),
    "base32": lambda source: base64.b32encode(source.randbytes(40)).decode(),
    "ascii85": lambda source: base64.a85encode(source.randbytes(60)).decode(),
    "base85": lambda source: base64.b85encode(source.randbytes(60)).decode(),
    "base64 pieces": lambda source: " ".join(
        base64.b64encode(source.randbytes(6)).decode() for _ in range(9)
    ),
    "codes": lambda source: " ".join(str(source.randrange(97, 123)) for _ in range(30)),
    "octal": lambda source: " ".join(f"{source.randrange(97, 123):03o}" for _ in range(30)),
    "bits": lambda source: " ".join(f"{source.getrandbits(8):08b}" for _ in range(16)),
    "small numbers": lambda source: "-".join(str(source.randrange(1, 27)) for _ in range(30)),
    "call signs": lambda source: " ".join(source.choice(_CODE_WORDS) for _ in range(10)),
    "Morse": lambda source: " ".join(
        "".join(source.choices(".-", k=source.randrange(1, 5))) for _ in range(12)
    ),
    "escapes": lambda source: "".join(f"\\x{source.getrandbits(8):02x}" for _ in range(40)),
    "letters": lambda source: " ".join(
        "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(25)
    ),
    "signs": lambda source: "".join(chr(source.randrange(32, 127)) for _ in range(300)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_strings_without_a_message_hide_nothing(shape: str) -> None:
    """Noise in the alphabet of each notation is not taken for language."""
    source = random.Random(11)
    found = [decode(f"Here: {SHAPES[shape](source)} thanks") for _ in range(60)]
    assert [views for views in found if views] == []


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_strings_hide_nothing(text: str) -> None:
    """Prose in several languages, code, hashes, ids and numbers are never taken for hidden text."""
    assert [view.method for view in decode(text) if view.method != "percent"] == []


def test_a_text_that_grows_when_read_hides_none_after_it() -> None:
    """Letters that NFKC makes many of do not use up what is decoded of the rest."""
    letters = "this is what comes first of it " + "\ufdfa" * 3000
    padding = base64.b64encode(letters.encode("utf-16-le")).decode()
    assert decode(f"{padding} and {_b64(SECRET)}")[-1].text == SECRET


def test_base64_pieces_between_commas_are_read_up_to_another_word() -> None:
    """What follows the last piece does not hide those before it."""
    pieces = ", ".join(map(_b64, SECRET.split()))
    assert [view.text for view in decode(f"Now {pieces}, please!")] == [SECRET]
