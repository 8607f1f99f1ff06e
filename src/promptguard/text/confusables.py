"""Letters of one script that pass for letters of another."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[^\W\d_]+")
_LOOKALIKE = re.compile("[Ͱ-ԯԱ-֏Ꭰ-Ᏽᴀ-ᴥɑɡɩɪʀʏʙʜʟɢɴᖴ]")
_LOOKALIKES = {
    "а": "a", "в": "b", "е": "e", "к": "k", "м": "m", "н": "h", "о": "o", "р": "p", "с": "c",
    "т": "t", "у": "y", "х": "x", "і": "i", "ї": "i", "ј": "j", "ѕ": "s", "ԁ": "d", "ԛ": "q",
    "ԝ": "w", "һ": "h", "ѵ": "v", "г": "r", "ё": "e", "ө": "o", "ь": "b", "з": "3", "п": "n",
    "А": "A", "В": "B", "Е": "E", "К": "K", "М": "M", "Н": "H", "О": "O", "Р": "P", "С": "C",
    "Т": "T", "У": "Y", "Х": "X", "І": "I", "Ї": "I", "Ј": "J", "Ѕ": "S", "Ԁ": "D", "Ԛ": "Q",
    "Ԝ": "W", "Һ": "H", "Ѵ": "V", "Ё": "E", "Ө": "O",
    "α": "a", "β": "b", "γ": "y", "ε": "e", "η": "n", "ι": "i", "κ": "k", "ν": "v", "ο": "o",
    "ρ": "p", "σ": "o", "τ": "t", "υ": "u", "χ": "x", "ω": "w", "ϲ": "c", "ϳ": "j", "ά": "a",
    "έ": "e", "ί": "i", "ό": "o",
    "Α": "A", "Β": "B", "Ε": "E", "Ζ": "Z", "Η": "H", "Ι": "I", "Κ": "K", "Μ": "M", "Ν": "N",
    "Ο": "O", "Ρ": "P", "Τ": "T", "Υ": "Y", "Χ": "X",
    "ա": "w", "հ": "h", "ո": "n", "ս": "u", "օ": "o", "ց": "g", "զ": "q",
    "Ꭺ": "A", "Ᏼ": "B", "Ꮯ": "C", "Ꭼ": "E", "Ꮋ": "H", "Ꭻ": "J", "Ꮶ": "K", "Ꮇ": "M", "Ꮲ": "P",
    "Ꭱ": "R", "Ꮪ": "S", "Ꭲ": "T", "Ꮩ": "V", "Ꮃ": "W", "Ꮓ": "Z", "Ꮐ": "G", "Ꭰ": "D", "Ꮮ": "L",
    "ɑ": "a", "ɡ": "g", "ɩ": "i",
}  # fmt: skip
_SMALL_CAPS = dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True))
# ISO 3166-1 and the further codes that Unicode has a flag for.
_REGION_CODES = (
    "AC AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN "
    "BO BQ BR BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CP CQ CR CU CV CW CX CY "
    "CZ DE DG DJ DK DM DO DZ EA EC EE EG EH ER ES ET EU FI FJ FK FM FO FR GA GB GD GE GF GG "
    "GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU IC ID IE IL IM IN IO IQ IR IS "
    "IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC "
    "MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO "
    "NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD "
    "SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TA TC TD TF TG TH TJ TK TL TM TN TO "
    "TR TT TV TW TZ UA UG UM UN US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW"
)
_REGIONS = frozenset(_REGION_CODES.split())
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]{2,}")
_TO_LATIN = str.maketrans(_LOOKALIKES | _SMALL_CAPS)
_TO_CYRILLIC = str.maketrans("aeopcyxkmhtbABEKMHOPCTXYi", "аеорсухкмнтвАВЕКМНОРСТХУі")


def _row(first: int) -> dict[int, str]:
    return {first + offset: chr(ord("a") + offset) for offset in range(26)}


STYLED: dict[int, str] = _row(0x1F130) | _row(0x1F150) | _row(0x1F170) | _row(0x1F1E6)
"""Letters in squares, discs and flags, which NFKC leaves alone."""


def without_flags(text: str) -> str:
    """Drop the flags of countries; a row of letters that are not all flags is left as it is."""
    return _FLAG_LETTERS.sub(_unflagged, text)


def _unflagged(match: re.Match[str]) -> str:
    named = match[0].translate(STYLED).upper()
    pairs = {named[at : at + 2] for at in range(0, len(named), 2)}
    return "" if pairs <= _REGIONS else match[0]


def unmix(text: str) -> str:
    """Map look-alikes within tokens that mix scripts; a token of one script is left as it is.

    The token becomes Latin where every letter can, else Cyrillic where every letter can. Small
    capitals are never a script of their own and always become Latin.
    """
    # One expression for "a token with a look-alike in it" takes quadratic time to fail.
    return _TOKEN.sub(_unmixed, text) if _LOOKALIKE.search(text) else text


def _unmixed(match: re.Match[str]) -> str:
    token = match[0]
    if token.isascii() or not _LOOKALIKE.search(token):
        return token
    latin = token.translate(_TO_LATIN)
    if any(char in _SMALL_CAPS for char in token) and latin.isascii():
        return latin
    if len(token) < 3 or not any("a" <= char <= "z" or "A" <= char <= "Z" for char in token):
        return token
    if latin.isascii():
        return latin
    # A Cyrillic word with a few Latin letters in it, where Latin has no look-alike for the rest.
    cyrillic = token.translate(_TO_CYRILLIC)
    if all("\u0400" <= char <= "\u052f" for char in cyrillic):
        return cyrillic
    return token
