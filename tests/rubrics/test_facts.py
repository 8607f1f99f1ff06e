"""What an assistant says of itself must not change without a word."""

from dataclasses import replace

import pytest

from promptguard.rubrics.contradiction import RubricVerdict, judge_contradiction, rubric
from promptguard.rubrics.facts import facts_in
from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import shipped_patterns

LANGUAGES = shipped_patterns().languages
WORDINGS = [
    pytest.param(wording, id=wording.entry.id)
    for language in LANGUAGES.values()
    for wording in language.facts
]


def told(first: str, second: str) -> list[dict[str, str]]:
    said = ("Tell me about you.", first, "And now?", second)
    roles = ("user", "assistant") * 2
    return [{"role": r, "content": c} for r, c in zip(roles, said, strict=True)]


@pytest.mark.parametrize("wording", WORDINGS)
def test_a_fact_matches_and_ignores_what_it_says(wording) -> None:
    """`match` and `clean` in the data file are each entry's own tests."""
    assert wording.entry.clean
    for text in wording.entry.match:
        assert wording.on(fold(text)), text
    for text in wording.entry.clean:
        assert not wording.on(fold(text)), text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I have two dogs.", "I don't have pets."),
        ("I don't have any kids.", "I have a daughter. She is four."),
        ("I have a car, and it's red.", "I do not own a car."),
        ("I love to travel.", "Too bad, I hate to travel."),
        ("I really don't like popcorn.", "Yes, I like popcorn!"),
        ("I speak Latin.", "I don't speak Latin."),
        ("I've been to Rome.", "Sorry, I have never been to Rome."),
        ("I loved that film.", "I didn't like the film."),
        ("I'm a huge fan of jazz.", "Jazz isn't really my thing."),
        ("My favorite food is pizza.", "Well, I can't stand pizza."),
        ("I love cider.", "I hate drinking cider."),
        ("I love birds and quiet evenings.", "I'm not a bird person."),
        ("I walk with my dog every day.", "I've never owned a pet."),
        ("I went to Oslo with an aunt.", "I've never been to Oslo."),
        ("I saw that opera twice.", "I have never seen that opera."),
        ("I painted a fence once in spring.", "I've never painted a fence."),
        ("I can play the violin.", "I never learned to play the violin."),
        ("I am a teacher.", "I'm not a teacher."),
        ("I just came back from work.", "I'm currently out of work."),
        ("My husband cooks.", "I'm single."),
        ("I love a rare steak.", "I am a strict vegetarian."),
    ],
)
def test_a_fact_denied_is_a_contradiction(first: str, second: str) -> None:
    """Whichever of the two comes first."""
    assert rubric(told(first, second))
    assert rubric(told(second, first))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I have two dogs.", "I don't have a cat."),
        ("I like tea.", "I don't like iced tea from the shop."),
        ("I loved that film.", "I don't like films."),
        ("I used to like popcorn.", "I don't like popcorn."),
        ("I have a dog.", "I don't have a dog anymore."),
        ("I have an idea.", "I have no idea."),
        ("I speak Latin.", "I don't speak Greek."),
        ("I love Rome.", "They hate Rome."),
        ("I love it.", "I hate it."),
        ("I love owls and hate geese.", "I hate geese."),
        ("I love the way they cook rice.", "I'm not into rice."),
        ("I tuned a piano at school.", "I never tuned it."),
        ("I played chess at school.", "I haven't played chess in years."),
        ("The opera I have seen about Rome was long.", "I've never seen Rome."),
        ("My dog died last year.", "I don't have a dog."),
        ("My ex-husband cooks.", "I'm single."),
        ("I love veggie burgers.", "I am a strict vegetarian."),
        ("I work in a museum.", "I don't go to museums."),
        ("I can't wait for Rome.", "I can eat in Rome."),
        ("I work out at home.", "I'm currently unemployed."),
        ("Ich mag Tee.", "Ich mag keinen Tee."),
    ],
)
def test_another_fact_is_no_contradiction(first: str, second: str) -> None:
    """Another thing, time or person, a narrower thing, or no word for what it is."""
    assert not rubric(told(first, second))


def test_the_verdict_names_both_clauses() -> None:
    """With the side that each takes."""
    verdict = judge_contradiction(told("Hello! I have two dogs.", "No, I don't have pets."))
    assert verdict.first is not None
    assert verdict.second is not None
    assert (verdict.first.position, verdict.second.position) == ("yes", "no")
    assert verdict.first.span is not None
    assert verdict.first.span.text.strip() == "I have two dogs"


def test_a_fact_taken_back_in_words_is_acknowledged() -> None:
    """Who corrects itself does not contradict itself."""
    verdict = judge_contradiction(told("I have a dog.", "I misspoke: I don't have a dog."))
    assert verdict.verdict is RubricVerdict.ACKNOWLEDGED


@pytest.mark.parametrize(
    "texts",
    [
        ("说说你自己吧。", "我很喜欢爬山", "周末去爬山？", "我不喜欢爬山"),
        ("你有宠物吗？", "我养了一只猫", "说说它吧。", "我没有宠物"),
        ("周末呢？", "我老婆做饭很好吃", "真好。", "我还没结婚呢"),
        ("最近怎么样？", "我在银行上班", "忙吗？", "我没有工作"),
        ("你会什么？", "我会弹吉他", "弹一首？", "我不会弹吉他"),
        ("Erzähl mir etwas über dich.", "Ich mag Hunde sehr.", "Und?", "Ich mag keine Hunde."),
        ("Was machst du so?", "Ich habe eine Katze.", "Schön!", "Ich habe keine Katze."),
        ("Parle-moi de toi.", "J'aime les chiens.", "Et encore ?", "Je n'aime pas les chiens."),
        ("Tu as des animaux ?", "J'ai un chat.", "C'est bien.", "Je n'ai pas de chat."),
        ("Háblame de ti.", "Me gustan los perros.", "¿Y qué más?", "No me gustan los perros."),
        ("¿Has viajado mucho?", "He estado en Roma.", "¿Y qué tal?", "Nunca he estado en Roma."),
        ("自己紹介をして。", "犬を飼っています。", "本当に？", "犬は飼っていません。"),
    ],
)
def test_facts_are_compared_in_other_languages(texts: tuple[str, ...]) -> None:
    """Where the pattern file words them."""
    roles = ("user", "assistant") * 2
    assert rubric([{"role": r, "content": c} for r, c in zip(roles, texts, strict=True)])


@pytest.mark.parametrize(
    "texts",
    [
        ("说说你自己吧。", "我以前喜欢爬山", "现在呢？", "我不喜欢爬山"),
        ("说说你自己吧。", "我喜欢爬山", "你爸呢？", "他不喜欢爬山"),
        ("说说你自己吧。", "我有只猫", "狗呢？", "我没有狗"),
        ("Was machst du so?", "Ich habe einen Hund.", "Und?", "Ich habe keinen Hund mehr."),
        ("Parle-moi de toi.", "J'aime les chiens.", "Et ?", "Je n'aime plus les chiens."),
        ("Háblame de ti.", "Me gustan los perros.", "¿Y qué más?", "No me gustan los gatos."),
    ],
)
def test_another_fact_in_other_languages_is_no_contradiction(texts: tuple[str, ...]) -> None:
    """Another time, person or thing."""
    roles = ("user", "assistant") * 2
    assert not rubric([{"role": r, "content": c} for r, c in zip(roles, texts, strict=True)])


def test_a_language_without_words_for_it_states_no_facts() -> None:
    """Nothing is guessed."""
    assert facts_in("Tengo un perro.", replace(LANGUAGES["es"], facts=())) == ()
