"""A guess at the language of a message, for statistics and filters only."""

from __future__ import annotations

import re

_READ_CHARS = 600
_LEAST_WORDS = 2
_WORD = re.compile(r"[^\W\d_]+")
# Kana comes before Han: Japanese uses both.
_SCRIPTS = (
    ("ja", re.compile("[\u3041-\u30fa]")),
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("zh", re.compile("[\u3400-\u9fff]")),
    ("ar", re.compile("[\u0600-\u06ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
_FUNCTION_WORDS = {
    "en": "the and of to is are you your how what with for that this my it do not in me can i",
    "de": "der die das und ist nicht ich du wie was mit für ein eine mir den auf zu sind bitte",
    "es": "el la los las y es no que cómo como con para una por mi en del qué puedes un",
    "fr": "le la les et est pas que comment avec pour une des je vous dans mon sur quel un du",
    "it": "il lo gli e è non che come con per una di mi nel della sono puoi un del",
    "pt": "o os as e é não que como com para uma por meu em do da você um",
    "nl": "de het een en is niet ik hoe wat met voor van op mijn je zijn",
}
_WORDS = {code: frozenset(words.split()) for code, words in _FUNCTION_WORDS.items()}


def language_of(text: str) -> str:
    """Return a language code; empty where the text does not show its language."""
    head = text[:_READ_CHARS].casefold()
    for code, script in _SCRIPTS:
        if script.search(head):
            return code
    words = _WORD.findall(head)
    counts = sorted(
        ((sum(word in known for word in words), code) for code, known in _WORDS.items()),
        reverse=True,
    )
    (most, code), (second, _) = counts[:2]
    return code if most > second and len(words) >= _LEAST_WORDS else ""
