"""An age, a home, a name or a trade that changes from one turn to the next."""

import pytest

from promptguard.conversation import messages_from
from promptguard.rubrics.attributes import number_in, values_in
from promptguard.rubrics.contradiction import RubricVerdict, judge_contradiction, rubric
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import shipped_patterns
from promptguard.rubrics.turns import turns_of

PATTERNS = shipped_patterns()
VALUES = [
    pytest.param(wording, id=wording.entry.id)
    for language in PATTERNS.languages.values()
    for wording in language.values
]


def talk(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


@pytest.mark.parametrize("wording", VALUES)
def test_a_value_matches_and_ignores_what_it_says(wording) -> None:
    """`match` and `clean` in the data file are each entry's own tests."""
    assert wording.entry.clean
    for text in wording.entry.match:
        assert wording.on(fold(text)), text
    for text in wording.entry.clean:
        assert not wording.on(fold(text)), text


@pytest.mark.parametrize(
    "texts",
    [
        ("你今年多大了？", "二十四了，你呢？", "你多大了？", "我今年26岁"),
        ("你多大？", "我是88年的", "你哪年的？", "我是91年的，比你小"),
        ("你是哪里人？", "四川的，你呢？", "你老家在哪？", "我老家是湖北的"),
        ("你是哪里人？", "我是山东青岛的", "你是山东哪里人？", "我是山东济南人"),
        ("你住在哪里？", "我住在上海", "你现在在哪？", "我在广州啊"),
        ("你叫什么？", "我叫林小雨", "你的名字是？", "我叫赵大海"),
        ("你是做什么的？", "我是做会计的", "你做什么工作？", "我是一名护士"),
        ("你是男生吗？", "我是男的", "你是女生吧？", "我是女生啊"),
        ("おいくつですか？", "私は25歳です。", "本当に？", "私は31歳です。"),
        ("Wie alt bist du und warum?", "Ich bin 25 Jahre alt.", "Und?", "Ich bin 31 Jahre alt."),
        ("Tu as quel age et pourquoi ?", "J'ai 25 ans.", "Et encore ?", "J'ai 31 ans."),
        ("¿Cuál es tu nombre?", "Me llamo Ana.", "¿Y tu nombre de verdad?", "Me llamo Laura."),
    ],
)
def test_another_value_is_a_contradiction(texts: tuple[str, ...]) -> None:
    """Given unasked or as the reply to the question for it."""
    assert rubric(talk(*texts))


@pytest.mark.parametrize(
    "texts",
    [
        ("你多大？", "我24了", "你今年几岁？", "二十四岁"),
        ("你多大？", "我24了", "你儿子多大？", "5岁了"),
        ("你多大？", "我24了", "你什么时候学的车？", "我18岁的时候学的"),
        ("你多大？", "我24了", "你哪年的？", "我是98年的"),
        ("你是哪里人？", "我是山东的", "山东哪里？", "我是山东青岛的"),
        ("你是哪里人？", "我是四川人", "你在哪里上班？", "我在北京上班"),
        ("你住哪里？", "我住在上海", "以前呢？", "我以前住在北京"),
        ("你叫什么？", "我叫小雨", "全名呢？", "我叫林小雨"),
        ("你叫什么？", "我叫林小雨", "你朋友呢？", "他叫赵大海"),
        ("你是做什么的？", "我是做会计的", "具体呢？", "我是做财务的"),
        ("你是做什么的？", "我是做会计的", "以前呢？", "我以前是护士"),
        ("他多大？", "他是1948年出生", "她呢？", "1971年出生"),
    ],
)
def test_another_persons_or_times_value_is_none(texts: tuple[str, ...]) -> None:
    """Nor is the same value in other words, or a part and its whole."""
    assert not rubric(talk(*texts))


def test_the_verdict_names_no_side() -> None:
    """A value is neither a yes nor a no."""
    verdict = judge_contradiction(talk("你多大？", "我24了", "你多大？", "我26了"))
    assert verdict.verdict is RubricVerdict.CONTRADICTION
    assert verdict.first is not None
    assert verdict.first.position == "unclear"
    assert "gives another answer than message 1" in verdict.reason


def test_a_reply_counts_only_right_after_its_question() -> None:
    """A bare number answers whatever was asked."""
    (age,) = turns_of(messages_from(talk("你多大？", "24")), PATTERNS)
    (size,) = turns_of(messages_from(talk("你家有几口人？", "24")), PATTERNS)
    assert [value.number for value in values_in(age, age.language)] == [24]
    assert values_in(size, size.language) == ()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("25", 25),
        ("二十五", 25),
        ("十八", 18),
        ("两百零三", 203),
        ("九零", 90),
        ("3十", 30),
        ("", None),
        ("一千", None),
        ("abc", None),
        ("9" * 40, None),
    ],
)
def test_numbers_are_read_in_digits_and_words(text: str, number: int | None) -> None:
    """Small ones only."""
    assert number_in(text) == number
