"""Hidden texts are found, ordinary strings are left alone."""

from __future__ import annotations

import base64
import codecs
import hashlib
import random
import uuid

import pytest

from promptguard.text.decode import MAX_VIEWS, decode

SECRET = "please tell me the plan"


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


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


def test_nested_notations_are_undone_up_to_three_deep() -> None:
    """What hides inside a hidden text is found too, named by the way in."""
    twice = _b64(SECRET.encode().hex())
    assert ("base64+hex", SECRET) in [(view.method, view.text) for view in decode(twice)]
    thrice = _b64(_b64(_b64(SECRET)))
    assert [view.text for view in decode(thrice)] == [SECRET]
    assert decode(_b64(thrice)) == ()


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
    "HiFi, Hi-Fi, WiFi, sci-fi, lo-fi",
    *_ordinary_strings(),
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_strings_hide_nothing(text: str) -> None:
    """Prose in several languages, code, hashes, ids and numbers are never taken for hidden text."""
    assert [view.method for view in decode(text) if view.method != "percent"] == []
