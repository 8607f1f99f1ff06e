"""What was read in the turn: signals `semantic`, `context`, `concepts` and `fil`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turn_contexts import current_turn, direction

from promptguard.errors import DataError
from promptguard.model.artifact import bundled
from promptguard.model.reading import ContextReading, MessageReading
from promptguard.protocols import FilReading
from promptguard.signals.readings import (
    ConceptWeights,
    concept_weights,
    concepts,
    context,
    fil,
    pairs_of,
    parse_clusters,
    semantic,
    shipped_clusters,
)
from promptguard.vector import Vector, pack_vector

ENCODED = base64.b64encode(b"please tell me all about the garden in the morning").decode()


def _reading(attack: float, **kinds: float) -> MessageReading:
    values = {"manipulative": 0.0, "extractive": 0.0, "harmful": 0.0} | kinds
    return MessageReading(attack=attack, **values)


def test_the_score_is_the_models_and_the_reason_names_the_kinds() -> None:
    """Kinds are named from the likeliest down."""
    result = semantic(current_turn(reading=_reading(0.8, manipulative=0.4, extractive=0.7)))
    assert result.score == pytest.approx(0.8)
    assert result.reason == "extractive 0.70, manipulative 0.40"
    assert result.parts["extractive"] == 0.7


def test_a_disguise_adds_to_what_is_risky_only() -> None:
    """Encoding something harmless is no offence; encoding an attack makes it worse."""
    assert semantic(current_turn(ENCODED, reading=_reading(0.01))).score < 0.02
    hidden = semantic(current_turn(ENCODED, reading=_reading(0.6, harmful=0.6)))
    assert hidden.score > 0.7
    assert "disguised by" in hidden.reason


def test_a_bare_follow_up_speaks_neither_way() -> None:
    """ "Go on" says nothing by itself: its calm reading is no evidence of innocence."""
    going_on = FilReading(features=("follow_up",))
    assert semantic(current_turn("go on", reading=_reading(0.01), fil=going_on)).score == 0.5
    assert semantic(current_turn("go on", reading=_reading(0.01))).score < 0.02


def test_without_a_model_nothing_is_said() -> None:
    """No reading is no evidence, either way."""
    assert semantic(current_turn()).score == context(current_turn()).score == 0.0


def test_the_turn_in_its_context_is_passed_on() -> None:
    """The context signal gives the readers' probability and how much they saw."""
    reading = ContextReading(turn=0.42, session=0.9, turns=7, is_truncated=True)
    result = context(current_turn(context=reading))
    assert result.score == pytest.approx(0.42)
    assert result.parts["session"] == 0.9
    assert result.reason == "serves an attack 0.42 in the light of the talk, older turns cut"


def test_a_first_turn_has_no_talk_before_it() -> None:
    """How many turns were seen stands in the parts."""
    reading = ContextReading(turn=0.42, session=0.42, turns=1, is_truncated=False)
    assert context(current_turn(context=reading)).reason == "serves an attack 0.42"


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_likelier_attack_never_scores_lower(low: float, high: float) -> None:
    """The signal is monotone in the model's word, disguised or not."""
    low, high = sorted((low, high))
    for text in ("hello", ENCODED):
        scores = [semantic(current_turn(text, reading=_reading(p))).score for p in (low, high)]
        assert scores[0] <= scores[1] + 1e-12


def _body() -> dict[str, Any]:
    entries = (("jailbreak", True, (1.0,)), ("study", False, (0.0, 1.0)))
    clusters = [
        {"name": name, "is_attack": attack, "count": 1, "vector": pack_vector(direction(*at))}
        for name, attack, at in entries
    ]
    return {"version": 1, "provenance": "test", "model": "0", "clusters": clusters}


def _read(vector: Vector | None) -> MessageReading:
    return MessageReading(
        attack=0.8, manipulative=0.8, extractive=0.0, harmful=0.0, embedding=vector
    )


def test_the_shipped_clusters_belong_to_the_shipped_model() -> None:
    """Embeddings of two versions are not comparable."""
    how = "run `python -m training.intent_clusters` as training/README.md says"
    assert shipped_clusters().model == bundled().manifest.version, how


def test_both_sides_have_clusters() -> None:
    """Attacks and ordinary use are told apart by name."""
    clusters = shipped_clusters()
    assert {"jailbreak", "injection", "extraction"} <= set(clusters.names)
    assert len(set(clusters.names)) == len(clusters.names) == len(clusters.attacks)
    assert 0 < clusters.attacks.sum() < len(clusters.names)


def test_a_message_is_nearest_to_what_it_resembles() -> None:
    """The side that a vector leans to is named, with its similarity."""
    near = parse_clusters(json.dumps(_body())).nearest(direction(1.0, 0.2))
    assert near is not None
    assert near.name == "jailbreak"
    assert near.similarity == near.attack > 0.9
    assert near.benign == 0.0


@pytest.mark.parametrize(
    "vector",
    [
        None,
        direction(1.0)[:5],
        np.zeros(0, dtype=np.float32),
        np.full(256, np.nan, dtype=np.float32),
    ],
)
def test_what_has_no_direction_is_near_nothing(vector: Vector | None) -> None:
    """No model, another model or a damaged vector is no likeness."""
    assert parse_clusters(json.dumps(_body())).nearest(vector) is None


def test_the_signal_names_the_cluster_and_keeps_the_score() -> None:
    """The likeness explains; how risky the message is stays the model's word."""
    clusters = shipped_clusters()
    row = clusters.names.index("jailbreak")
    like = clusters.middle + clusters.directions[row]
    told, untold = (
        semantic(current_turn(reading=reading)) for reading in (_read(like), _read(None))
    )
    assert told.score == untold.score
    assert "nearest to jailbreak (1.00)" in told.reason
    assert told.parts["near_attack"] == pytest.approx(1.0, abs=1e-4)
    assert "near_attack" not in untold.parts


def test_a_faint_likeness_is_not_named() -> None:
    """Below the threshold the numbers are given without a name."""
    clusters = shipped_clusters()
    noise = np.random.default_rng(0).normal(size=clusters.middle.size).astype(np.float32)
    result = semantic(current_turn(reading=_read(noise)))
    assert "nearest" not in result.reason
    assert set(result.parts) >= {"near_attack", "near_benign"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.pop("model"),
        lambda body: body.update(clusters=body["clusters"][:1]),
        lambda body: body["clusters"][0].update(vector="?"),
        lambda body: body["clusters"][0].update(vector="AAAA"),
        lambda body: body["clusters"][0].update(is_attack=False),
    ],
)
def test_a_broken_file_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    """Missing fields, one cluster, unreadable vectors or one side only are named as faults."""
    body = _body()
    spoil(body)
    with pytest.raises(DataError, match=r"intent_clusters\.json"):
        parse_clusters(json.dumps(body))


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


def test_the_score_is_the_clamped_harm() -> None:
    """Harm is passed on as it was stored."""
    reading = FilReading(harm_score=0.45, features=("jailbreak",))
    result = fil(current_turn(fil=reading))
    assert (result.score, result.reason) == (0.45, "jailbreak")


def test_a_hard_violation_is_certain() -> None:
    """A hard violation scores 1 whatever the sum says, and names its directives."""
    result = fil(current_turn(fil=FilReading(harm_score=0.2, is_hard=True, violated=("01b",))))
    assert result.score == 1.0
    assert result.reason == "hard violation; violates 01b"


def test_escalation_lifts_harm_but_makes_none() -> None:
    """An escalation needs something now to be about."""
    rising = ("rising scores",)
    now = FilReading(harm_score=0.3, features=("jailbreak",), escalation=rising)
    assert fil(current_turn(fil=now)).score == 0.6
    assert fil(current_turn(fil=FilReading(harm_score=0.0, escalation=rising))).score == 0.0


def test_a_message_that_shows_nothing_is_not_held_to_the_past() -> None:
    """The layer's sum after an attack is the past's; a harmless turn scores 0."""
    past = FilReading(harm_score=0.8, escalation=("rising scores",), mentioned=("01",))
    assert fil(current_turn(fil=past)).score == 0.0


def test_silence_is_nothing() -> None:
    """No finding, no score, no reason."""
    result = fil(current_turn())
    assert (result.score, result.reason) == (0.0, "")
