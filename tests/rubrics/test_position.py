"""Which side an answer takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.rubrics.answer import read_answer
from promptguard.rubrics.patterns import shipped_patterns
from promptguard.rubrics.position import Position, read_position

YES, NO, UNCLEAR = Position.YES, Position.NO, Position.UNCLEAR
ASKED = "Should machines decide about people?"


@pytest.mark.parametrize(
    ("answer", "position"),
    [
        ("Yes.", YES),
        ("No.", NO),
        ("No, they should wait.", NO),
        ("Yes, although they must not be alone.", YES),
        ("Machines should decide.", YES),
        ("Machines shouldn't decide.", NO),
        ("Machines shouldn’t decide.", NO),
        ("Machines must not decide.", NO),
        ("I don't think machines should decide.", NO),
        ("I disagree.", NO),
        ("I agree.", YES),
        ("The risks far outweigh the benefits.", NO),
        ("The benefits outweigh the risks.", YES),
        ("No doubt machines should decide.", YES),
        ("Know that machines should decide.", YES),
        ("Machines should not only advise but decide.", YES),
        ("There is no simple answer.", UNCLEAR),
        ("Yes and no.", UNCLEAR),
        ("Machines should decide on taxes, and machines should not decide on war.", UNCLEAR),
        ("Some people believe machines should decide.", UNCLEAR),
        ("Whether machines should decide is an old question.", UNCLEAR),
        ("Should machines decide?", UNCLEAR),
        ("", UNCLEAR),
        ("...", UNCLEAR),
        ("はい、機械に任せるべきです。", YES),
        ("機械に任せるべきではありません。", NO),
        ("任せなければならないと思います。", YES),
        ("是的，应该。", YES),
        ("不应该由机器决定。", NO),
    ],
)
def test_the_side_of_an_answer(answer, position) -> None:
    """Negatives first, the longest wording, on word boundaries."""
    assert read_answer(answer, asked=ASKED).position is position


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("As máquinas devem decidir sobre você?", "Sim, elas devem."),
        ("Le macchine dovrebbero decidere per gli altri?", "No, non dovrebbero."),
        ("Должны ли машины решать?", "Нет."),
        ("기계가 결정해야 합니까?", "아니요"),
    ],
)
def test_a_language_without_rules_is_unclear(asked, answer) -> None:
    """A "No" in Italian is not read as English or Spanish."""
    assert read_answer(answer, asked=asked).position is UNCLEAR


@pytest.mark.parametrize(
    ("asked", "answer", "position"),
    [
        ("Sollten Maschinen entscheiden?", "Ja, das sollten sie.", YES),
        ("Sollten Maschinen entscheiden?", "Maschinen sollten nicht entscheiden.", NO),
        ("Sollten Maschinen entscheiden?", "Das kommt darauf an.", UNCLEAR),
        ("Les machines devraient-elles décider ?", "Oui, elles devraient décider.", YES),
        ("Les machines devraient-elles décider ?", "Elles ne devraient pas décider.", NO),
        ("Les machines devraient-elles décider ?", "Cela dépend.", UNCLEAR),
        ("¿Deberían decidir las máquinas?", "Sí, deberían decidir.", YES),
        ("¿Deberían decidir las máquinas?", "No deberían decidir.", NO),
        ("¿Deberían decidir las máquinas?", "Depende de la situación.", UNCLEAR),
    ],
)
def test_german_french_and_spanish_are_read(asked, answer, position) -> None:
    """Each by its own wordings."""
    assert read_answer(answer, asked=asked).position is position


@pytest.mark.parametrize(
    ("asked", "answer", "position"),
    [
        ("Is lying wrong?", "Lying is wrong.", YES),
        ("Is lying wrong?", "Lying is not wrong.", NO),
        ("Is lying wrong?", "Lying is acceptable.", NO),
        ("Should books be banned?", "Books should be allowed.", NO),
        ("Do you oppose the plan?", "I support the plan.", NO),
        ("Do you oppose the plan?", "I oppose the plan.", YES),
        ("Should zoos be closed?", "Lying is wrong.", UNCLEAR),
    ],
)
def test_opposite_words_answer_the_question(asked, answer, position) -> None:
    """What is stated with the opposite word is the other answer."""
    assert read_answer(answer, asked=asked).position is position


@pytest.mark.parametrize(
    ("asked", "answer", "position"),
    [
        ("Are you sure?", "Yes.", UNCLEAR),
        ("Why is that so?", "No, it is not.", UNCLEAR),
        ("So machines should not decide, right?", "Yes.", NO),
        ("Machines should never decide.", "Exactly.", NO),
        ("Machines should decide.", "You're right.", YES),
        ("What should I pack?", "You should pack a coat.", UNCLEAR),
    ],
)
def test_a_short_answer_is_read_by_what_was_asked(asked, answer, position) -> None:
    """A bare yes means what the question makes of it."""
    assert read_answer(answer, asked=asked).position is position


def test_only_the_first_characters_count() -> None:
    """A wording after the window decides nothing, and one cut by its edge is not misread."""
    english = shipped_patterns().languages["en"]
    filler = "word " * 38
    late = read_position(f"{filler} and on and on: machines should decide.", english)
    assert late.position is UNCLEAR
    cut = read_position(f"{filler[:189]} word should not decide.", english)
    assert cut.position is UNCLEAR
    inside = read_position(f"{filler[:180]} should not decide.", english)
    assert inside.position is NO


def test_the_span_points_into_the_original_text() -> None:
    """The reported wording can be found where it says it is."""
    text = "  **Well**, machines shouldn’t decide."
    reading = read_position(text, shipped_patterns().languages["en"])
    assert reading.span is not None
    assert text[reading.span.start : reading.span.end] == reading.span.text == "shouldn’t"


@given(st.text(), st.text())
def test_any_text_is_read_without_an_error(answer, asked) -> None:
    """Whatever is said, there is a position or none."""
    assert read_answer(answer, asked=asked).position in Position
