"""Answers in words of their question: Chinese and Japanese say "like" for yes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.conversation import messages_from
from promptguard.rubrics.contradiction import RubricVerdict, judge_contradiction, rubric
from promptguard.rubrics.echo import claim_in, echoes_of
from promptguard.rubrics.patterns import shipped_patterns
from promptguard.rubrics.turns import turns_of

PATTERNS = shipped_patterns()
CHINESE = PATTERNS.languages["zh"]


def talk(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


def sides(asked: str, answer: str) -> list[bool]:
    """What each echo of one answer says of the claim: affirmed or denied."""
    (turn,) = turns_of(messages_from(talk(asked, answer)), PATTERNS)
    return [echo.stance.is_affirmed for echo in echoes_of(turn)]


@pytest.mark.parametrize(
    ("asked", "answer", "is_affirmed"),
    [
        ("你喜欢爬山吗？", "喜欢啊，周末常去", True),
        ("你喜欢爬山吗？", "不喜欢，太累了", False),
        ("你不喜欢爬山吗？", "喜欢呀", True),
        ("你不喜欢爬山吗？", "不喜欢。", False),
        ("你有没有弟弟？", "有", True),
        ("你有没有弟弟？", "没有呢", False),
        ("你会不会游泳？", "我不会", False),
        ("你去过青海吗？", "没去过", False),
        ("你去过青海吗？", "去过一次", True),
        ("你结婚了吗？", "还没结", False),
        ("你是不是记者？", "是啊", True),
        ("你不是记者吗？", "不是", False),
        ("你平时忙不忙？", "不忙", False),
        ("你喜欢爬山吗？", "嗯，不喜欢爬山", False),
        ("犬は好きですか？", "はい、好きです。", True),
        ("犬は好きですか？", "好きじゃないです。", False),
        ("犬を飼っていますか？", "飼っていません。", False),
        ("京都に行ったことがありますか？", "ありません。", False),
        ("京都に行ったことがありますか？", "行ったことないです。", False),
        ("京都に行ったことがありますか？", "あります。", True),
    ],
)
def test_an_echo_takes_a_side(asked: str, answer: str, is_affirmed: bool) -> None:
    """Whether the question was put with a negation or without."""
    assert sides(asked, answer) == [is_affirmed]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("你喜欢爬山吗？", "还不错"),
        ("你喜欢爬山吗？", "没问题，走吧"),
        ("你喜欢爬山吗？", "不客气"),
        ("你喜欢爬山吗？", "有时候喜欢"),
        ("你喜欢爬山吗？", "以前喜欢"),
        ("你喜欢爬山吗？", "没有不喜欢"),
        ("你喜欢爬山吗？", "爬山？"),
        ("你不喜欢爬山吗？", "是的"),
        ("你不喜欢爬山吗？", "不是"),
        ("你喜欢什么运动？", "喜欢爬山"),
        ("今天我去爬山了。", "不喜欢"),
        ("你呢？", "喜欢"),
        ("犬は好きですか？", "あまり好きじゃないです。"),
        ("何が好きですか？", "犬が好きです。"),
        ("Do you like tea?", "Like tea."),
    ],
)
def test_an_answer_may_leave_it_open(asked: str, answer: str) -> None:
    """Idioms, hedges, double negatives, questions back and a yes to a negative take no side."""
    assert sides(asked, answer) == []


def test_right_is_no_negation() -> None:
    """What is written with a negative may agree."""
    assert sides("你喜欢爬山吗？", "没错") == [True]


def test_a_question_that_offers_both_is_one_claim() -> None:
    """Like or not like asks whether one likes."""
    for asked in ("你喜不喜欢爬山？", "你喜欢不喜欢爬山？", "你喜欢爬山吗？"):
        claim = claim_in(asked, CHINESE)
        assert claim is not None
        assert claim.core == "喜欢爬山"


@pytest.mark.parametrize("asked", ["你不会不喜欢吧？", "你为什么喜欢爬山？", "", "你说得没错。"])
def test_what_puts_no_single_claim_is_left(asked: str) -> None:
    """Two negations, a request for information, and statements."""
    assert claim_in(asked, CHINESE) is None


@pytest.mark.parametrize(
    "texts",
    [
        ("你平常喜欢看科幻片吗？", "喜欢啊", "你通常喜欢看科幻片吗？", "不喜欢，我喜欢睡觉"),
        ("你喜欢下雨天吗？", "喜欢", "你讨厌下雨天吗？", "讨厌啊"),
        ("你喜欢下雨天吗？", "喜欢", "你讨厌下雨天吗？", "不讨厌，只是不喜欢"),
        ("你有弟弟吗？", "有啊", "你没有弟弟吗？", "没有"),
        ("你现在在打工吗？", "没有，我还在上学", "你现在在工作吗？", "在工作啊"),
        ("你不是学生吗？", "是啊", "你是学生吗？", "不是"),
        ("你有女朋友吗？", "有", "周末做什么？", "我是单身狗，在家睡觉"),
        ("猫は好きですか？", "好きです。", "猫は好きですか？", "好きじゃないです。"),
        ("猫は好きですか？", "好きです。", "では、何か話して。", "実は、猫は嫌いです。"),
        (
            "沖縄に行ったことがありますか？",
            "あります。",
            "いい所？",
            "沖縄に行ったことはありません。",
        ),
    ],
)
def test_the_same_question_answered_otherwise_is_a_contradiction(texts: tuple[str, ...]) -> None:
    """Also in other words, with the opposite word, or told without being asked."""
    assert rubric(talk(*texts))


@pytest.mark.parametrize(
    "texts",
    [
        ("你喜欢钢琴吗？", "喜欢", "你喜欢足球吗？", "不喜欢"),
        ("你喜欢下雨天吗？", "喜欢", "你讨厌下雨天吗？", "不讨厌"),
        ("你喜欢下雨天吗？", "不喜欢", "你讨厌下雨天吗？", "不讨厌"),
        ("你有喜欢的城市吗？", "有", "你有讨厌的城市吗？", "没有"),
        ("你喜欢爬山吗？", "喜欢", "爬山好不好玩？", "没错，不错，好玩"),
        ("你去过青海吗？", "没去过", "你想去青海吗？", "想去"),
        ("你喜欢爬山吗？", "喜欢", "你喜欢爬山，是不是？", "是啊"),
        ("你喜欢爬山吗？", "喜欢", "我朋友说他不喜欢爬山。", "你说“不喜欢”，没关系"),
        ("你会做饭吗？", "会", "你会不会迟到？", "不会，没问题"),
        ("犬は好きですか？", "好きです。", "猫は好きですか？", "好きじゃないです。"),
        ("犬は好きですか？", "好きです。", "車は少ないですか？", "少ないです。"),
    ],
)
def test_another_question_is_no_contradiction(texts: tuple[str, ...]) -> None:
    """Another thing, another scale end that is only denied, an idiom, a tag, a quotation."""
    assert not rubric(talk(*texts))


def test_an_echo_taken_back_in_words_is_acknowledged() -> None:
    """Who corrects itself does not contradict itself."""
    texts = ("你去过青海吗？", "去过", "你去过青海吗？", "我记错了，没去过")
    verdict = judge_contradiction(talk(*texts))
    assert verdict.verdict is not RubricVerdict.CONTRADICTION


@given(st.text(alphabet="你我他喜欢不没有是吗过了的啊，。？ABc 好きですかないはい"), st.text())
def test_any_text_is_read_without_an_error(asked: str, answer: str) -> None:
    """Whatever is asked and said."""
    for turn in turns_of(messages_from(talk(f"{asked}吗？", f"{answer}啊")), PATTERNS):
        assert isinstance(echoes_of(turn), tuple)
