"""Layers and their weighted mean."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptguard.core.layers import Layer, LayerPriority, MultiNeutrosophicPrompt
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import InputError

unit = st.floats(0, 1)
values = st.builds(Neutrosophic, unit, unit, unit)
layers = st.builds(
    Layer,
    priority=st.sampled_from(LayerPriority),
    name=st.just("X"),
    evaluations=st.lists(values, max_size=4).map(tuple),
)


def layer(priority: LayerPriority, *evaluations: Neutrosophic) -> Layer:
    return Layer(priority=priority, name=priority.name, evaluations=evaluations)


def test_a_layer_without_evaluations_is_half_undecided() -> None:
    """Nothing known is (0, 0.5, 0)."""
    assert layer(LayerPriority.USER).value.as_tuple() == (0.0, 0.5, 0.0)


def test_a_prompt_without_layers_is_wholly_undecided() -> None:
    """Nothing given is (0, 1, 0)."""
    assert MultiNeutrosophicPrompt().aggregate().as_tuple() == (0.0, 1.0, 0.0)


def test_a_layers_value_is_the_mean_of_its_evaluations() -> None:
    """Two evaluations count the same."""
    found = layer(LayerPriority.USER, Neutrosophic(0.2, 0.4, 0.6), Neutrosophic(0.4, 0.8, 0.0))
    assert found.value.as_tuple() == pytest.approx((0.3, 0.6, 0.3))


def test_a_merged_value_takes_the_place_of_the_mean() -> None:
    """The merge strategy has the last word; the spread stays that of the evaluations."""
    merged = Neutrosophic(0.1, 0.1, 0.9)
    found = Layer(
        priority=LayerPriority.USER,
        name="USER",
        evaluations=(Neutrosophic(1, 0, 0), Neutrosophic(0, 0, 1)),
        merged=merged,
    )
    assert found.value is merged
    assert found.truth_variance == pytest.approx(0.25)


def test_layers_stand_in_order_of_priority_and_weigh_by_it() -> None:
    """SYSTEM 100, APPLICATION 50, USER 10."""
    prompt = MultiNeutrosophicPrompt(
        [
            layer(LayerPriority.USER, Neutrosophic(0, 0, 1)),
            layer(LayerPriority.SYSTEM, Neutrosophic(1, 0, 0)),
            layer(LayerPriority.APPLICATION, Neutrosophic(0, 1, 0)),
        ]
    )
    assert [item.name for item in prompt] == ["SYSTEM", "APPLICATION", "USER"]
    assert prompt.aggregate().as_tuple() == pytest.approx((100 / 160, 50 / 160, 10 / 160))
    assert len(prompt.neighbours()) == 2
    assert len(prompt.pairs()) == 3


def test_only_the_users_layer_is_untrusted() -> None:
    """System and application layers are the developer's."""
    assert [item.name for item in LayerPriority if not item.is_trusted] == ["USER"]


@given(st.lists(layers, min_size=1, max_size=6))
def test_the_aggregate_lies_between_the_layers(items: list[Layer]) -> None:
    """No component leaves the range of its members."""
    whole = MultiNeutrosophicPrompt(items).aggregate().as_tuple()
    for component, numbers in enumerate(
        zip(*(item.value.as_tuple() for item in items), strict=True)
    ):
        assert min(numbers) <= whole[component] <= max(numbers)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.1, 10**400])
def test_a_value_outside_the_unit_interval_is_refused(bad: float) -> None:
    """Every component is checked."""
    for numbers in ((bad, 0, 0), (0, bad, 0), (0, 0, bad)):
        with pytest.raises(InputError):
            Neutrosophic(*numbers)
