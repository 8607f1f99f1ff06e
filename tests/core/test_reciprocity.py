"""Balance, flows and exchange type; and the published run, reproduced."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.core.layers import Layer, LayerPriority, MultiNeutrosophicPrompt
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.core.reciprocity import (
    ExchangeType,
    exchange_type_of,
    reciprocity_of,
)

RECORDED = json.loads(Path(__file__).with_name("recorded_balances.json").read_text())
unit = st.floats(0, 1)
values = st.builds(Neutrosophic, unit, unit, unit)


def prompt_of(*layers: tuple[LayerPriority, Neutrosophic], chars: int = 10):
    return MultiNeutrosophicPrompt(
        Layer(priority=priority, name=priority.name, chars=chars, evaluations=(value,))
        for priority, value in layers
    )


def test_every_recorded_balance_is_reproduced() -> None:
    """All 676 balances to 1e-6, with their exchange types and violations."""
    assert len(RECORDED["rows"]) == 676
    for row in RECORDED["rows"]:
        given_row = dict(zip(RECORDED["columns"], row, strict=True))
        system = Neutrosophic(*(given_row[f"system_{part}"] for part in "tif"))
        user = Neutrosophic(*(given_row[f"user_{part}"] for part in "tif"))
        # The numbers do not say how long a text was; two violations mean a long one.
        chars = 5001 if given_row["violations"] == 2 else 10
        found = reciprocity_of(
            prompt_of((LayerPriority.SYSTEM, system), (LayerPriority.USER, user), chars=chars)
        )
        assert found.balance == pytest.approx(given_row["balance"], abs=1e-6), given_row["id"]
        assert found.exchange_type == given_row["exchange_type"], given_row["id"]
        assert len(found.trust.violations) == given_row["violations"], given_row["id"]


def test_any_violation_breaks_the_circuit() -> None:
    """One layer over the bound and the balance is -1."""
    found = reciprocity_of(prompt_of((LayerPriority.USER, Neutrosophic(1, 0, 0.7))))
    assert found.balance == -1.0
    assert found.exchange_type is ExchangeType.EXTRACTIVE


def test_great_falsehood_below_a_violation_costs_eight_tenths() -> None:
    """Between 0.6 and 0.65 there is no violation, but a heavy penalty."""
    found = reciprocity_of(prompt_of((LayerPriority.USER, Neutrosophic(0.9, 0.3, 0.62))))
    assert found.balance == pytest.approx(0.9 - 0.8)


def test_a_low_truth_is_lowered_by_disagreement() -> None:
    """Below 0.7 the spread of the layers is subtracted."""
    found = reciprocity_of(
        prompt_of(
            (LayerPriority.SYSTEM, Neutrosophic(0.6, 0.3, 0.0)),
            (LayerPriority.USER, Neutrosophic(0.2, 0.3, 0.0)),
        )
    )
    whole = (60 + 2) / 110
    assert found.balance == pytest.approx(whole - 0.2 * 0.04 * (1 - 0.5 * found.trust.strength))


def test_a_prompt_without_layers_has_a_balance() -> None:
    """Nothing known: undecided, hence below zero."""
    found = reciprocity_of(MultiNeutrosophicPrompt())
    assert found.balance == pytest.approx(-0.35)
    assert found.flows == {}


def test_flows_are_named_for_their_layers() -> None:
    """Every ordered pair, higher to lower."""
    one = Neutrosophic(0.8, 0, 0.5)
    found = reciprocity_of(
        prompt_of(
            (LayerPriority.USER, Neutrosophic(0.6, 0, 0.0)),
            (LayerPriority.SYSTEM, one),
            (LayerPriority.APPLICATION, one),
        )
    )
    assert found.flows == pytest.approx(
        {"SYSTEM→APPLICATION": 0.4, "SYSTEM→USER": 0.5, "APPLICATION→USER": 0.5}
    )


@pytest.mark.parametrize(
    ("balance", "flow", "expected"),
    [
        (-0.31, None, "extractive"),
        (-0.3, None, "reciprocal"),
        (0.9, 0.29, "extractive"),
        (0.51, 0.61, "generative"),
        (0.51, None, "generative"),
        (0.51, 0.6, "reciprocal"),
        (0.5, 0.9, "reciprocal"),
        (0.09, 0.5, "neutral"),
        (-0.09, None, "neutral"),
        (0.1, None, "reciprocal"),
    ],
)
def test_exchange_types_at_their_bounds(balance: float, flow: float | None, expected: str) -> None:
    """Without flows only the balance counts."""
    flows = {} if flow is None else {"SYSTEM→USER": flow}
    assert exchange_type_of(balance, flows) == expected


@given(st.lists(st.tuples(st.sampled_from(LayerPriority), values), max_size=5))
def test_the_balance_is_bounded(layers: list[tuple[LayerPriority, Neutrosophic]]) -> None:
    """Between -1 and 1, and -1 wherever there is a violation."""
    found = reciprocity_of(prompt_of(*layers))
    assert -1.0 <= found.balance <= 1.0
    if found.trust.violations:
        assert found.balance == -1.0
