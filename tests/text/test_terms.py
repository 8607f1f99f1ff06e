"""What a text is about can be compared across turns and languages."""

from __future__ import annotations

import pytest

from promptguard.text.vocabulary import key_terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is a lock and how do locks work?", ("lock",)),
        ("¿Cómo funcionan las cerraduras de una puerta?", ("funcionan", "cerradura", "puerta")),
        ("Comment fonctionnent les serrures d'une porte ?", ("fonctionnent", "serrure", "porte")),
        ("Wie funktionieren die Schlösser der Tür?", ("funktionieren", "schlosser", "tur")),
        ("Как работают замки на двери?", ("работают", "замки", "двери")),
        ("Ещё: самолёт и самолет, Ёлка", ("самолет", "елка")),
        ("자물쇠를 여는 방법을 알려줘 자물쇠는", ("자물쇠", "여는")),
        ("鍵の仕組み", ("仕組",)),
        ("サーバーの設定", ("サー", "ーバ", "バー", "設定")),
        ("怎么开锁", ("么开", "开锁")),
    ],
)
def test_content_words_are_kept(text: str, expected: tuple[str, ...]) -> None:
    """Stop words, plural endings and particles go, content words stay."""
    assert key_terms(text) == expected


def test_the_most_frequent_come_first_up_to_the_limit() -> None:
    """Frequency orders the terms, then appearance; the limit cuts."""
    text = "apple pear plum pear fig pear plum"
    assert key_terms(text, 3) == ("pear", "plum", "apple")
    assert key_terms(text, 0) == ()


def test_a_text_without_content_has_no_terms() -> None:
    """Greetings and punctuation are about nothing."""
    assert key_terms("Hello, how are you? 123 !!") == ()
    assert key_terms("") == ()
