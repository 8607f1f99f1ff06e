"""What turns are about, and how two of them compare."""

import numpy as np
import pytest
from turn_contexts import direction, past_turn

from promptguard.protocols import FilReading, Subject
from promptguard.signals.subject import (
    is_same_subject,
    likeness,
    mean_vector,
    overlap,
    similarity,
    subject_terms,
    subjects_of,
)
from promptguard.state import SessionState
from promptguard.text.read import read_text
from promptguard.vector import cosine, pack_vector, packed_cosine, packed_mean, unpack_vector

NORTH, EAST = direction(1.0), direction(0.0, 1.0)
NOWHERE = np.zeros(0, dtype=np.float32)


def subject(*terms: str, vector: np.ndarray = NOWHERE) -> Subject:
    return Subject(terms=frozenset(terms), vector=vector)


def test_subjects_go_with_the_remembered_turns() -> None:
    """In their order, with the vectors that were stored."""
    past = (past_turn("the harbour crane", vector=NORTH), past_turn("vegetable soup"))
    state = SessionState(session_id="s", recent=past)
    found = subjects_of(state, read_text("leek soup"), FilReading(), 3.0 * EAST)
    assert [len(each.terms) for each in found.past] == [2, 2]
    assert found.past[0].vector == pytest.approx(NORTH, abs=0.01)
    assert found.past[1].vector.size == 0
    assert float(np.linalg.norm(found.now.vector)) == pytest.approx(1.0)
    assert found.now.terms & found.past[1].terms == {"soup"}


@pytest.mark.parametrize(
    ("text", "features", "expected"),
    [
        ("go on", ("follow_up",), True),
        ("go on", (), False),
        ("go on " + "with all of it " * 20, ("follow_up",), False),
    ],
)
def test_a_follow_up_says_so_and_little_else(text: str, features: tuple, expected: bool) -> None:
    """A long message that also asks to go on has something of its own to say."""
    state = SessionState(session_id="s")
    found = subjects_of(state, read_text(text), FilReading(features=features), None)
    assert found.is_follow_up is expected


def test_words_that_frame_a_question_name_no_subject() -> None:
    """Long words count by their stem, so that forms of one word are one."""
    assert subject_terms(("weakness", "crane")) == {"crane"}
    assert subject_terms(("chemistry",)) == subject_terms(("chemicals",))
    assert subject_terms(("lock",)) != subject_terms(("locker",))


def test_likeness_is_by_meaning_and_by_words() -> None:
    """Each in [0,1]; opposite directions are as unlike as any."""
    north, south = subject("a", "b", vector=NORTH), subject("b", "c", vector=-NORTH)
    assert likeness(north, north) == (pytest.approx(1.0), 1.0)
    assert likeness(north, south) == (0.0, pytest.approx(0.5))
    assert overlap(frozenset(), frozenset("a")) == 0.0


def test_vectors_of_another_model_are_unlike() -> None:
    """A change of the model must not make two subjects the same."""
    assert similarity(NORTH, NORTH[:64]) == 0.0
    assert similarity(NOWHERE, NOWHERE) == 0.0


def test_one_shared_word_or_a_near_meaning_is_the_same_subject() -> None:
    """Neither is another one."""
    assert is_same_subject(subject("crane"), subject("crane", "soup"))
    assert is_same_subject(subject(vector=NORTH), subject(vector=direction(1.0, 0.2)))
    assert not is_same_subject(subject("a", vector=NORTH), subject("b", vector=EAST))


def test_the_mean_direction_leaves_out_what_has_none() -> None:
    """Vectors of another size than the newest belong to another model."""
    assert mean_vector([NORTH, NOWHERE, NORTH]) == pytest.approx(NORTH)
    assert mean_vector([EAST[:64], NORTH]) == pytest.approx(NORTH)
    assert mean_vector([NOWHERE]).size == 0
    assert mean_vector([NORTH, -NORTH]).size == 0


def test_packing_keeps_the_direction() -> None:
    """A few hundred bytes stand for a vector, none for none."""
    assert cosine(unpack_vector(pack_vector(NORTH)), NORTH) > 0.999
    assert unpack_vector("").size == 0
    assert packed_cosine(pack_vector(NORTH), pack_vector(EAST)) == pytest.approx(0.0, abs=0.01)
    assert packed_cosine("", pack_vector(EAST)) == 0.0


def test_a_mean_of_packed_vectors_is_weighted() -> None:
    """Empty ones have no weight."""
    both = packed_mean((pack_vector(NORTH), pack_vector(EAST)), (3, 1))
    assert packed_cosine(both, pack_vector(NORTH)) > 0.9
    assert packed_mean(("", pack_vector(EAST)), (3, 1)) == packed_mean((pack_vector(EAST),), (1,))
    assert packed_mean(("", ""), (1, 1)) == ""
