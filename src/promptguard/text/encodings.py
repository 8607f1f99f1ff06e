"""Ways of writing text as other characters, each undone by one function over one match."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_letters, ascii_lowercase, ascii_uppercase

from promptguard.text.vocabulary import reads_like_prose, segment


@dataclass(frozen=True, slots=True)
class Encoding:
    """What an encoding looks like (`pattern`), and how it is undone; None where it cannot be.

    Ordinary text is passed over fast: one of `hints` must occur, `min_digits` digits, and a run
    of `min_run` characters without a space.
    """

    name: str
    pattern: re.Pattern[str]
    undo: Callable[[str], str | None]
    hints: tuple[str, ...] = ()
    min_digits: int = 0
    min_run: int = 0


def _from_bytes(raw: bytes) -> str | None:
    # Latin letters in UTF-16 have a zero in every other byte.
    zeros = [at for at in (0, 1) if len(raw) > 8 and not any(raw[at:32:2])]
    charset = ("utf-16-be", "utf-16-le")[zeros[-1]] if zeros else "utf-8"
    try:
        return raw.decode(charset)
    except UnicodeDecodeError:
        return None


def _begins_like_text(raw: bytes) -> bool:
    """Whether the first bytes of something longer may be text, which random bytes seldom are."""
    try:
        head = codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in head)


def _base64(found: str) -> str | None:
    compact = "".join(found.split()).rstrip("=").replace("-", "+").replace("_", "/")
    # A single sign beyond the groups of four holds no whole byte.
    if len(compact) % 4 == 1:
        compact = compact[:-1]
    try:
        return _from_bytes(base64.b64decode(compact + "=" * (-len(compact) % 4)))
    except binascii.Error:
        return None


def _base64_pieces(found: str) -> str | None:
    """Undo base64 cut into pieces of whole bytes, or words that were encoded one by one."""
    pieces = found.replace(",", " ").split()
    words = [_base64(piece) for piece in pieces]
    if "=" in "".join(pieces[:-1]) or any(word is None for word in words):
        return " ".join(filter(None, words)) if all(words) else None
    parting = "" if " " in "".join(filter(None, words)) else " "
    return parting.join(filter(None, words))


def _base32(found: str) -> str | None:
    compact = found.rstrip("=").upper()
    # So many digits beyond the groups of eight hold no whole byte.
    if len(compact) % 8 in (1, 3, 6):
        compact = compact[:-1]
    if not _begins_like_text(base64.b32decode(compact[:16])):
        return None
    try:
        return _from_bytes(base64.b32decode(compact + "=" * (-len(compact) % 8)))
    except binascii.Error:
        return None


def _values(digits: str) -> dict[str, int]:
    return {digit: value for value, digit in enumerate(digits)}


_ASCII85 = _values("".join(map(chr, range(33, 118))))
_BASE85 = _values("0123456789" + ascii_uppercase + ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~")
_Z85 = _values("0123456789" + ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#")
_OVERFLOW = 1 << 32
_QUOTES = "\"'`"


def _ascii85(found: str) -> str | None:
    inner = found.removeprefix("<~").removesuffix("~>").replace("z", "!!!!!")
    return _base85("".join(inner.split()), _ASCII85)


def _either_base85(found: str) -> str | None:
    return _base85(found, _BASE85) or _base85(found, _Z85)


def _base85(found: str, values: dict[str, int]) -> str | None:
    """Undo with and without the quotes around, which are themselves digits of some alphabets."""
    for digits in dict.fromkeys((found, found.strip(_QUOTES), found.rstrip(".,"))):
        if not _begins_in(digits[:5], values) or not values.keys() >= set(digits):
            continue
        if not _begins_like_text(_groups(digits[:20], values)):
            continue
        raw = _groups(digits, values)
        # What follows the last whole group may be the punctuation of the sentence around it.
        plain = _from_bytes(raw) or _from_bytes(raw[: len(raw) // 4 * 4])
        if plain:
            return plain
    return None


def _begins_in(digits: str, values: dict[str, int]) -> bool:
    """Whether the first bytes may be text: what most tokens of code fail, and cheaply."""
    number = 0
    for digit in digits:
        number = number * 85 + values.get(digit, _OVERFLOW)
    if number >= _OVERFLOW:
        return False
    raw = number.to_bytes(4, "big")
    return raw.decode().isprintable() if raw.isascii() else raw[0] >= 32


def _groups(digits: str, values: dict[str, int]) -> bytes:
    """Return four bytes for every five digits; a group too large becomes a byte no text has."""
    raw = bytearray()
    for at in range(0, len(digits), 5):
        group = [values[digit] for digit in digits[at : at + 5]]
        number = 0
        # A short group is padded with the highest digit, as the notations prescribe.
        for value in group + [84] * (5 - len(group)):
            number = number * 85 + value
        raw += number.to_bytes(4, "big")[: len(group) - 1] if number < _OVERFLOW else b"\xff"
    return bytes(raw)


def _hex(found: str) -> str | None:
    digits = re.sub(r"0x|[\s,:]", "", found)
    return _from_bytes(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _binary(found: str) -> str | None:
    digits = "".join(found.split())
    if len(digits) % 8:
        return None
    return _from_bytes(bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8)))


def _decimal(found: str) -> str | None:
    return _from_codes([int(number) for number in re.findall(r"\d+", found)])


def _octal(found: str) -> str | None:
    plain = _from_codes([int(number, 8) for number in re.findall(r"(?:0o)?(\d+)", found)])
    # Decimal codes may have no digit above seven either; those give few letters in octal.
    is_prose = plain is not None and sum(map(str.isalpha, plain)) >= 0.6 * len(plain)
    return plain if is_prose else None


def _from_codes(codes: list[int]) -> str | None:
    if not all(32 <= code < 127 or code == 10 for code in codes):
        return None
    return "".join(map(chr, codes))


def _letter_numbers(found: str) -> str | None:
    """Undo a = 1, b = 2: hyphens within words and spaces between, or spaces and slashes."""
    words = re.split(r"\s*[/|]\s*|\s{2,}" if "-" not in found else r"[\s/|]+", found.strip())
    numbers = [[int(number) for number in re.findall(r"\d+", word)] for word in words]
    if not all(1 <= number <= 26 for word in numbers for number in word):
        return None
    plain = _spelled(["".join(chr(96 + number) for number in word) for word in numbers], 8)
    # Small numbers in a row are common, so that more is asked of what they spell.
    return plain if plain and reads_like_prose(plain, 3) else None


def _spelled(words: list[str], min_letters: int) -> str | None:
    """Return letters as words, found in the run of letters where nothing parts them."""
    if sum(map(len, words)) < min_letters:
        return None
    return " ".join(words) if len(words) > 1 else segment(words[0])


_MORSE = {
    ".-": "a", "-...": "b", "-.-.": "c", "-..": "d", ".": "e", "..-.": "f", "--.": "g",
    "....": "h", "..": "i", ".---": "j", "-.-": "k", ".-..": "l", "--": "m", "-.": "n",
    "---": "o", ".--.": "p", "--.-": "q", ".-.": "r", "...": "s", "-": "t", "..-": "u",
    "...-": "v", ".--": "w", "-..-": "x", "-.--": "y", "--..": "z", "-----": "0",
    ".----": "1", "..---": "2", "...--": "3", "....-": "4", ".....": "5", "-....": "6",
    "--...": "7", "---..": "8", "----.": "9",
}  # fmt: skip
_MORSE_SIGNS = str.maketrans({"·": ".", "•": ".", "−": "-", "–": "-", "—": "-", "_": "-", "|": "/"})


def _morse(found: str) -> str | None:
    words = re.split(r"\s*/\s*|\s{2,}", found.translate(_MORSE_SIGNS).strip(" /"))
    letters = [[_MORSE.get(code) for code in word.split()] for word in words]
    if any(letter is None for word in letters for letter in word):
        return None
    return " ".join("".join(filter(None, word)) for word in letters)


# The sign before a capital stands for no letter and is dropped.
_BRAILLE = dict(
    zip("⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵⠀ ⠂⠲⠦⠖⠠", "abcdefghijklmnopqrstuvwxyz  ,.?!\0", strict=True)
)


def _braille(found: str) -> str | None:
    letters = [_BRAILLE.get(sign) for sign in found]
    if any(letter is None for letter in letters):
        return None
    return "".join(filter(None, letters)).replace("\0", "")


_ALPHABET = (
    "alfa alpha bravo charlie delta echo foxtrot golf hotel india juliett juliet kilo lima mike "
    "november oscar papa quebec romeo sierra tango uniform victor whiskey whisky xray x-ray "
    "yankee zulu"
)
# The longest first, or "juliet" would match the beginning of "juliett".
_CODE_WORD = "|".join(sorted(_ALPHABET.split(), key=len, reverse=True))
# Any sentence has one.
_VOWELS = ("alpha", "alfa", "echo", "india", "oscar", "uniform", "yankee")
_CODE_WORD_GAP = r"(?:[ ,.;/|\n-]{1,4}(?:space|stop|break)\b)?[ ,.;/|\n-]{1,4}"


def _nato(found: str) -> str | None:
    lowered = found.lower().replace("x-ray", "xray")
    words = re.split(r"\b(?:space|stop|break)\b|[/|\n]|(?<=\w) {2,}(?=\w)", lowered)
    initials = ["".join(name[0] for name in re.findall(r"\w+", word)) for word in words]
    return _spelled([word for word in initials if word], 6)


_RUN64 = "[A-Za-z0-9+/_-]"
# The first two signs can only be these where the first byte is a letter or a space.
# A piece ends where a gap may begin: a run of pieces then never fails at its end, which would
# take quadratic time.
_PIECE64 = rf"[IQ-WYZa-e][CEFGHSU-Xik-ny0-3]{_RUN64}{{1,62}}+={{0,2}}(?![^\s,])"
# Letters take three digits; blanks, digits and signs take two unless a zero leads.
_OCTAL = r"(?:0o?)?(?:[01][0-7]{2}|[4-7][0-7])"
ENCODINGS: tuple[Encoding, ...] = (
    Encoding(
        "binary",
        re.compile(r"(?<!\w)[01]{8}(?:\s?[01]{8}){3,}+"),
        _binary,
        min_digits=32,
        min_run=8,
    ),
    Encoding(
        "octal",
        re.compile(rf"(?<![\w.\\]){_OCTAL}(?:[\s,;]{{1,2}}{_OCTAL}){{7,}}(?![\d.])"),
        _octal,
        min_digits=20,
    ),
    Encoding(
        "hex",
        re.compile(
            r"(?<![0-9A-Za-z])(?:0x)?[0-9A-Fa-f]{2}(?:[\s,:]{0,2}(?:0x)?[0-9A-Fa-f]{2}){5,}"
        ),
        _hex,
        min_digits=6,
    ),
    Encoding(
        "decimal",
        re.compile(r"(?<![\d.])\d{2,3}(?:[ ,;]{1,2}\d{2,3}){7,}(?!\d)"),
        _decimal,
        min_digits=16,
    ),
    Encoding(
        "letter_numbers",
        re.compile(
            r"(?<![\w.:/-])\d{1,2}(?:-\d{1,2}|[ ]{1,3}(?:[/|][ ]{0,2})?\d{1,2}){7,}(?![\w.:])"
        ),
        _letter_numbers,
        min_digits=8,
    ),
    Encoding(
        "morse",
        re.compile(r"(?<![\w.-])[.·•−–—_-]{1,5}(?:[ ]{1,3}(?:[/|][ ]{0,2})?[.·•−–—_-]{1,5}){3,}"),
        _morse,
        hints=(" .", " -", " ·", " •", " −", " –", " —", " _"),
    ),
    Encoding("braille", re.compile(r"[⠀-⣿](?:[ ]?[⠀-⣿])+"), _braille, hints=("⠑", "⠁", "⠕", "⠊")),
    Encoding(
        "nato",
        re.compile(rf"(?i)\b(?:{_CODE_WORD})\b(?:{_CODE_WORD_GAP}(?:{_CODE_WORD})\b){{5,}}"),
        _nato,
        hints=tuple(form for name in _VOWELS for form in (name, name.title(), name.upper())),
    ),
    Encoding(
        "base32",
        re.compile(r"(?<!\w)(?:[A-Z2-7]{16,}+|[a-z2-7]{16,}+)={0,6}(?!\w)"),
        _base32,
        min_run=16,
    ),
    Encoding(
        "base64",
        re.compile(rf"{_RUN64}{{12,}}(?:\r?\n{_RUN64}{{12,}})*={{0,2}}"),
        _base64,
        min_run=12,
    ),
    Encoding(
        "base64_pieces",
        re.compile(rf"(?<!\S){_PIECE64}(?:[ ,\n]{{1,2}}{_PIECE64}){{3,}}"),
        _base64_pieces,
    ),
    Encoding(
        "ascii85", re.compile(r"<~[!-uz\s]{8,}+~>|(?<!\S)[!-uz]{20,}+(?!\S)"), _ascii85, min_run=12
    ),
    Encoding("base85", re.compile(r"(?<!\S)[!-~]{20,}+(?!\S)"), _either_base85, min_run=20),
)
"""Tried in this order: what fits a narrower alphabet first."""
