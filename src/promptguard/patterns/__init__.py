"""Pattern packs: one notation, loader and compiler for everything recognised by its wording.

Everything known of a language lies in one folder, `data/lang/<code>/`; its files are sections
(rules, structure, phrases, lexicon, rubric, stopwords, concepts), and each has the same form.
"""

from promptguard.patterns.languages import (
    add_language,
    codes,
    language_cache,
    on_change,
    on_new,
    packs,
)
from promptguard.patterns.pack import (
    Entry,
    Pack,
    PatternSet,
    any_of,
    compiled,
    parse_pack,
    read_pack,
)

__all__ = [
    "Entry",
    "Pack",
    "PatternSet",
    "add_language",
    "any_of",
    "codes",
    "compiled",
    "language_cache",
    "on_change",
    "on_new",
    "packs",
    "parse_pack",
    "read_pack",
]
