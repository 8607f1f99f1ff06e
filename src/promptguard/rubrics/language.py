"""Which covered language a text is in, or none."""

from __future__ import annotations

import re
from collections import Counter

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import LanguageRules, RubricPatterns

_KANA = re.compile("[\u3041-\u309f\u30a1-\u30fa]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_OTHER_SCRIPT = re.compile("[\u0370-\u05ff\u0600-\u10ff\u1100-\u11ff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_FEW_WORDS = 4
_OTHER = "other"


def language_of(text: str, patterns: RubricPatterns) -> LanguageRules | None:
    """Return the rules for `text`, or None where its language is not covered or not to be told."""
    folded = fold(text)
    code = _by_script(folded) or _leading(folded, patterns)
    return patterns.languages.get(code) if code is not None else None


def shows_language(text: str, patterns: RubricPatterns) -> bool:
    """Say whether a text is long enough, and wordy enough, to show its language by itself."""
    folded = fold(text)
    is_wordy = len(_WORD.findall(folded)) >= _FEW_WORDS
    return _by_script(folded) is not None or (is_wordy and _leading(folded, patterns) is not None)


def _by_script(folded: str) -> str | None:
    """Return the code of the language that the letters show; None for Latin ones.

    A few letters of another script, such as a Greek one in a formula, show none.
    """
    kana, han, other = (len(script.findall(folded)) for script in (_KANA, _HAN, _OTHER_SCRIPT))
    words = len(_WORD.findall(folded))
    if (kana + han) * 4 > words:
        # Japanese shares the Han characters with Chinese.
        return "ja" if kana else "zh"
    return _OTHER if other * 4 > words else None


def _leading(folded: str, patterns: RubricPatterns) -> str | None:
    """Return the code of the language with most function words; None where several have.

    Languages share their short words, so that only one that leads is recognised by them.
    """
    words = _WORD.findall(folded)
    counts = Counter(
        {
            code: sum(word in language.function_words for word in words)
            for code, language in patterns.languages.items()
        }
    )
    # Otherwise a language without rules would be taken for its nearest relative that has some.
    counts[_OTHER] = sum(word in patterns.foreign_words for word in words)
    (best, most), (_, second) = counts.most_common(2)
    return best if most > second else None
