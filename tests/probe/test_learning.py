"""Epsilon-greedy learning."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.errors import DataError
from promptguard.probe.learning import Scores, choose_strategy, scores_from_json, scores_to_json
from promptguard.probe.strategies import AnswerKind, Strategy

TRIALS = st.lists(
    st.tuples(st.sampled_from(AnswerKind), st.sampled_from(Strategy), st.booleans()), max_size=60
)


def learned(trials) -> Scores:
    scores = Scores()
    for kind, strategy, is_win in trials:
        scores = scores.learned(kind, strategy, is_win=is_win)
    return scores


@given(TRIALS)
def test_scores_count_and_survive_the_file(trials) -> None:
    """What is written is what is read."""
    scores = learned(trials)
    assert scores_from_json(scores_to_json(scores)) == scores
    assert sum(tally.trials for tally in scores.tallies.values()) == len(trials)
    assert all(0 < tally.value < 1 for tally in scores.tallies.values())


@given(TRIALS, st.sampled_from(AnswerKind), st.integers())
def test_without_chance_the_best_is_chosen(trials, kind, seed) -> None:
    """Epsilon 0 takes a strategy of the highest value."""
    scores = learned(trials)
    chosen = choose_strategy(scores, kind, epsilon=0.0, draw=Random(seed))
    assert scores.of(kind, chosen).value == max(scores.of(kind, s).value for s in Strategy)


def test_with_full_chance_every_strategy_comes_up() -> None:
    """Epsilon 1 ignores the scores."""
    scores = learned([(AnswerKind.CONFIDENT, Strategy.ACCUSE, True)] * 20)
    draw = Random(3)
    kind = AnswerKind.CONFIDENT
    chosen = {choose_strategy(scores, kind, epsilon=1.0, draw=draw) for _ in range(200)}
    assert chosen == set(Strategy)


def test_kinds_are_learned_apart() -> None:
    """What works on confident answers says nothing of hedging ones."""
    scores = learned([(AnswerKind.CONFIDENT, Strategy.ACCUSE, True)] * 3)
    assert scores.of(AnswerKind.HEDGING, Strategy.ACCUSE).trials == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"confident": 1}',
        '{"bold": {}, "x": {"y": 1}}',
        '{"confident": {"accuse": {}}}',
        '{"confident": {"accuse": {"trials": 1, "wins": 2}}}',
    ],
)
def test_broken_scores_are_refused(text) -> None:
    """They are named, not guessed at."""
    with pytest.raises(DataError):
        scores_from_json(text)
