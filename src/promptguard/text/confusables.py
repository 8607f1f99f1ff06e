"""Letters of one script that pass for letters of another."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[^\W\d_]+")
_LOOKALIKE = re.compile("[Ͱ-ԯԱ-֏Ꭰ-Ᏽᴀ-ᴥɑɡɩɪʀʏʙʜʟɢɴᖴ]")
_LOOKALIKES = (
    # Cyrillic, small and capital.
    ("авекмнорстухіїјѕԁԛԝһѵгёөьзп", "abekmhopctyxiijsdqwhvreob3n"),
    ("АВЕКМНОРСТУХІЇЈЅԀԚԜҺѴЁӨ", "ABEKMHOPCTYXIIJSDQWHVEO"),
    # Greek, small and capital.
    ("αβγεηικνορστυχωϲϳάέίό", "abyenikvopotuxwcjaeio"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX"),
    # Armenian, Cherokee, the phonetic alphabet.
    ("ահոսօցզ", "whnuogq"),
    ("ᎪᏴᏟᎬᎻᎫᏦᎷᏢᎡᏚᎢᏙᎳᏃᏀᎠᏞ", "ABCEHJKMPRSTVWZGDL"),
    ("ɑɡɩ", "agi"),
)
_SMALL_CAPS = ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz")
# ISO 3166-1 and the further codes that Unicode has a flag for: each first letter with its second.
_REGION_CODES = (
    "ACDEFGILMOQRSTUWXZ BABDEFGHIJLMNOQRSTVWYZ CACDFGHIKLMNOPQRUVWXYZ DEGJKMOZ EACEGHRSTU "
    "FIJKMOR GABDEFGHILMNPQRSTUWY HKMNRTU ICDELMNOQRST JEMOP KEGHIMNPRWYZ LABCIKRSTUVY "
    "MACDEFGHKLMNOPQRSTUVWXYZ NACEFGILOPRUZ OM PAEFGHKLMNRSTWY QA REOSUW "
    "SABCDEGHIJKLMNORSTVXYZ TACDFGHJKLMNORTVWZ UAGMNSYZ VACEGINU WFS XK YET ZAMW"
)
_REGIONS = frozenset(row[0] + second for row in _REGION_CODES.split() for second in row[1:])
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]{2,}")
_TO_LATIN = {
    code: plain
    for letters, latin in (*_LOOKALIKES, _SMALL_CAPS)
    for code, plain in str.maketrans(letters, latin).items()
}
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
    if any(char in _SMALL_CAPS[0] for char in token) and latin.isascii():
        return latin
    if len(token) < 3 or not any("a" <= char <= "z" or "A" <= char <= "Z" for char in token):
        return token
    if latin.isascii():
        return latin
    # A Cyrillic word with a few Latin letters in it, where Latin has no look-alike for the rest.
    cyrillic = token.translate(_TO_CYRILLIC)
    return cyrillic if all("\u0400" <= char <= "\u052f" for char in cyrillic) else token
