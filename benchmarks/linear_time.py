"""Time against length: `python -m benchmarks.linear_time [--quick] [--only NAME]`.

Every function that reads a text is run on texts made to be slow, at a length and at twice that
length; the time may grow by `MOST` at most. Ratios of processor time are compared, not seconds, so
that the machine and its load do not matter. Ends with status 1 where a function is not linear.
"""

from __future__ import annotations

import argparse
import base64
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.finding import canonical
from promptguard.rubrics.language import language_of
from promptguard.rubrics.patterns import shipped_patterns
from promptguard.rubrics.position import read_position
from promptguard.service.body import prose_in
from promptguard.signals.structure import structure
from promptguard.signals.wording import Phrase, classify_reply, count, matchable, shipped_lexicon
from promptguard.text.confusables import unmix
from promptguard.text.normalize import (
    fold,
    nfkc,
    plain_letters,
    strip_hidden,
    unleet,
    unmark,
    unspace,
)
from promptguard.text.places import original_spans
from promptguard.text.read import TextViews, decode, read_text
from promptguard.text.vocabulary import key_terms, reads_like_language, reads_like_prose, segment
from promptguard.text.windows import windows
from promptguard.turns.replies import secrets_in

# Twice the time is linear and four times quadratic; the rest is noise of the machine.
MOST = 2.6
FULL = (20_000, 160_000, 500_000)
QUICK = (32_000,)
REPEATS = 3
_TOO_SHORT_S = 0.004
_PROSE = "The garden club meets on Thursday at seven; how do I make tea for 12 people? "
_KANA = "かなカナ漢字ｶﾞ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How much longer one function takes for twice the length, and the time that it then takes."""

    function: str
    family: str
    length: int
    ratio: float
    seconds: float

    @property
    def is_linear(self) -> bool:
        """Whether the time grew in step with the length, or is too short to tell."""
        return self.ratio <= MOST


def _repeated(unit: str) -> Callable[[int], str]:
    return lambda length: (unit * (length // len(unit) + 1))[:length]


def _ended(unit: str, end: str) -> Callable[[int], str]:
    return lambda length: (unit * (length // len(unit) + 1))[: length - len(end)] + end


def _base64(length: int) -> str:
    return base64.b64encode(_repeated(_PROSE)(length).encode())[:length].decode()


def _base64_twice(length: int) -> str:
    return base64.b64encode(_base64(length).encode())[:length].decode()


FAMILIES: Mapping[str, Callable[[int], str]] = {
    "prose": _repeated(_PROSE),
    "letters, then an accent": _ended("a", "é"),
    "letters, then a Greek word": _ended("a", " α"),
    "exclamation marks, then an accent": _ended("!", "é"),
    "leet, then an accent": _ended("a1!|", "é"),
    "kana": _repeated(_KANA),
    "kana, then Greek": _ended("あ", "α"),
    "Cyrillic among Latin": _repeated("pаypаl"),
    "one combining mark": _repeated("\u0300"),
    "combining marks out of order": _repeated("\u0301\u0323"),
    "half-width marks": _repeated("\uff9e\u0301"),
    "zero-width padding": _repeated("a\u200b"),
    "zero-width bits": _repeated("\u200b\u200c\u200c"),
    "tags": _repeated("\U000e0061\U000e0020"),
    "variation selectors": _repeated("😀\U000e0151\U000e0152\U000e0143"),
    "emoji": _repeated("👨\u200d👩\u200d👧😀☺\ufe0f"),
    "styled letters": _repeated("𝐢𝐠🅘ⓘ"),
    "brackets": _repeated("([{<"),
    "base64": _base64,
    "base64 twice": _base64_twice,
    "base64-like": _repeated("QUJD"),
    "base64 pieces": _repeated("cGxl YXNl "),
    "base64 pieces, then a stop": _ended("cGxl, ", "cGxl."),
    "base85-like": _repeated("87cURD]j7BEbo8087cURD]j7BEbo80 "),
    "base32-like": _repeated("ORSWY3BA"),
    "digits": _repeated("0123456789"),
    "decimal codes": _repeated("104 101 "),
    "bits": _ended("01000001", "x"),
    "letter numbers": _repeated("8-5-12 "),
    "hex": _repeated("68 65 6c"),
    "Morse": _repeated(".- / -. "),
    "code words": _repeated("Golf Oscar "),
    "HTML entities": _repeated("&#104;"),
    "URL escapes": _repeated("%41"),
    "Unicode escapes": _repeated("\\u0068"),
    "octal escapes": _repeated("\\150 "),
    "quoted-printable": _repeated("=69"),
    "leet": _repeated("h4ck "),
    "letters set apart": _repeated("a b "),
    "words between dashes": _repeated("a-"),
    "words nobody knows": _repeated("zq xv "),
    "spaces": _repeated(" \n\t"),
    "quotes after stops": _ended('."', "x"),
}

_INSTINCT = FrozenInstinct.load()


def _assess(text: str) -> object:
    # The views are given whole, so that the rules alone are timed.
    views = TextViews(original=text, plain=text, folded=text, texts=(text,))
    return _INSTINCT.assess(views, now=0.0)


def _phrases(text: str) -> object:
    folded = matchable(_folded(text))
    return [count(phrase, folded) for phrase in Phrase]


def _folded(text: str) -> str:
    return fold(nfkc(text))


def _position(text: str) -> object:
    patterns = shipped_patterns()
    language = language_of(text, patterns) or language_of("Yes, I think so.", patterns)
    return language and read_position(text, language, asked=text)


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "read_text": read_text,
    "decode": decode,
    "strip_hidden": strip_hidden,
    "plain_letters": plain_letters,
    "fold": fold,
    "nfkc": nfkc,
    "unmix": unmix,
    "unspace": unspace,
    "unmark": unmark,
    "unleet": unleet,
    "key_terms": key_terms,
    "reads_like_language": reads_like_language,
    "reads_like_prose": reads_like_prose,
    "segment": segment,
    "windows": lambda text: list(windows(text)),
    "original_spans": lambda text: original_spans(text, ()),
    "rules: canonical": canonical,
    "rules: assess": _assess,
    "lexicon: hits": lambda text: shipped_lexicon().hits(_folded(text)),
    "phrases": _phrases,
    "structure": lambda text: structure().find((text,)),
    "rubric: position": _position,
    "reply: kind": classify_reply,
    "reply: secrets": lambda text: list(secrets_in(text)),
    "fields: prose": prose_in,
}


def measure(length: int, function: str, family: str) -> Ratio:
    """Return the ratio at `length`, or at half of it where that is smaller.

    Growth shows at every length; a step of the memory allocator shows at one.
    """
    ratio, seconds = _ratio(length, function, family)
    if ratio > MOST:
        ratio = min(ratio, _ratio(length // 2, function, family)[0])
    return Ratio(function=function, family=family, length=length, ratio=ratio, seconds=seconds)


def _ratio(length: int, function: str, family: str) -> tuple[float, float]:
    """Return the median ratio of a few pairs of runs, and the time of the longer one."""
    ratios, long = [], 0.0
    for _ in range(REPEATS):
        short, long = (_seconds(function, family, size) for size in (length, 2 * length))
        # Below this the clock and the allocator decide, not the text.
        ratios.append(long / short if long > _TOO_SHORT_S else 2.0)
        if ratios[0] <= MOST:
            break
    return statistics.median(ratios), long


def _seconds(function: str, family: str, length: int) -> float:
    text = FAMILIES[family](length)
    # It would answer the second run on the same text.
    matchable.cache_clear()
    # The collector walks all that the process holds, which is no work on this text.
    gc.disable()
    # Time of this process alone, so that others on the machine do not count.
    began = time.process_time()
    FUNCTIONS[function](text)
    seconds = time.process_time() - began
    gc.enable()
    return seconds


def ratios(lengths: tuple[int, ...], only: str = "") -> Iterator[Ratio]:
    """Measure every function on every family at every length and its double."""
    for function in FUNCTIONS:
        if only not in function:
            continue
        FUNCTIONS[function]("warm")
        for family in FAMILIES:
            for length in lengths:
                found = measure(length, function, family)
                yield found
                if not found.is_linear:
                    break


def main() -> int:
    """Print one line per function, the worst first within it, and every ratio beyond the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Up to 64,000 characters.")
    parser.add_argument("--only", default="", help="Functions whose name holds this.")
    options = parser.parse_args()
    failed = 0
    worst: dict[str, Ratio] = {}
    slowest: dict[str, Ratio] = {}
    for found in ratios(QUICK if options.quick else FULL, options.only):
        worst[found.function] = max(worst.get(found.function, found), found, key=lambda r: r.ratio)
        slowest[found.function] = max(
            slowest.get(found.function, found), found, key=lambda r: r.seconds
        )
        if not found.is_linear:
            failed += 1
            print(f"NOT LINEAR  {_line(found)}", flush=True)
    for name, found in worst.items():
        print(f"{name:20} worst ratio {_line(found)}")
        print(f"{'':20} slowest     {_line(slowest[name])}")
    print(f"{failed} beyond {MOST}")
    return 1 if failed else 0


def _line(found: Ratio) -> str:
    return (
        f"{found.ratio:5.2f}  {found.length:>7} -> {2 * found.length:>7}  "
        f"{found.seconds:7.3f} s  {found.function} on {found.family}"
    )


if __name__ == "__main__":
    sys.exit(main())
