"""The signal `concepts`: what is named, weighed the same in every language and process."""

import pytest
from turn_contexts import current_turn

from promptguard.signals.concepts import ConceptWeights, concept_weights, concepts, pairs_of


def _named(*names: str) -> dict[str, tuple[tuple[int, int], ...]]:
    return dict.fromkeys(names, ((0, 1),))


def test_only_telling_pairs_have_a_weight_of_their_own() -> None:
    """A hazard is paired with the frame beside it, by name and by group; two hazards are not."""
    found = pairs_of(("hazard.weapon", "hazard.poison", "intent.make"))
    assert found == {
        "hazard+intent.make",
        "hazard.weapon+intent",
        "hazard.poison+intent",
    }
    assert pairs_of(("intent.make", "means.tool")) == frozenset()


def test_the_sum_does_not_depend_on_the_order_of_a_set() -> None:
    """Terms that cancel in one order only are summed exactly, so every process agrees."""
    names = ("hazard.a", "hazard.b", "hazard.c", "intent.x")
    sizes = (1e16, 1.0, -1e16)
    pairs = {f"{name}+intent": size for name, size in zip(names, sizes, strict=False)}
    weights = ConceptWeights(base=0.5, concepts={}, pairs=pairs)
    assert weights.log_odds(names) == 1.5
    assert weights.log_odds(reversed(names)) == 1.5


def test_naming_nothing_is_told_as_such() -> None:
    """Without a concept the score is that of the base rate, with a reason that says so."""
    result = concepts(current_turn("hello"))
    assert result.reason == "names nothing telling"
    assert result.score < 0.5


def test_the_weightiest_concepts_are_named_first_and_few() -> None:
    """The reason holds four names, in falling order of weight."""
    weights = concept_weights().concepts
    names = sorted(weights, key=lambda name: -weights[name])[:6]
    result = concepts(current_turn("hello", concepts=_named(*reversed(names))))
    assert result.reason == ", ".join(names[:4])


@pytest.mark.parametrize("kind", ["hazard.", "evasion."])
def test_what_attacks_name_scores_above_what_nobody_minds(kind: str) -> None:
    """The weightiest concept of a group scores higher than an innocent one."""
    weights = concept_weights().concepts
    worst = max((name for name in weights if name.startswith(kind)), key=lambda n: weights[n])
    harmless = min((n for n in weights if n.startswith("innocent.")), key=lambda n: weights[n])
    risky = concepts(current_turn("hello", concepts=_named(worst)))
    calm = concepts(current_turn("hello", concepts=_named(harmless)))
    assert risky.score > calm.score
