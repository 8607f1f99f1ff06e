"""Intent clusters say what a message is like, and change no score."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from turn_contexts import current_turn, direction

from promptguard.errors import DataError
from promptguard.model.artifact import bundled
from promptguard.model.reading import MessageReading
from promptguard.signals.semantic import parse_clusters, semantic, shipped_clusters
from promptguard.vector import Vector, pack_vector


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
