"""What calls cost."""

from __future__ import annotations

import pytest

from promptguard.errors import DataError
from promptguard.providers.pricing import FREE, Price, read_prices, shipped_prices
from promptguard.providers.registry import target_of


def test_the_shipped_table_says_when_and_whence() -> None:
    """Prices go stale, so their date and source are part of the file."""
    table = shipped_prices()
    assert len(table.date) == 10
    assert "genai-prices" in table.source
    assert all(0 < price.input <= price.output for price in table.prices.values())


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("openai/gpt-4o-mini", Price(input=0.15, output=0.6)),
        ("openrouter/openai/gpt-4o-mini", Price(input=0.15, output=0.6)),
        ("openai/gpt-4o-mini-2024-07-18", Price(input=0.15, output=0.6)),
        ("openai/gpt-4o-2024-05-13", Price(input=5.0, output=15.0)),
        ("x-ai/grok-4-fast", Price(input=0.2, output=0.5)),
        ("x-ai/grok-4-fast:free", FREE),
        ("ollama/llama3.2", FREE),
        ("openai/gpt-unheard-of", None),
        ("http://host/v1#gpt-4o-mini", None),
    ],
)
def test_models_are_found_by_their_names(name: str, price: Price | None) -> None:
    """Dated names fall back on the undated; what is unknown is None, not free."""
    assert shipped_prices().price_of(target_of(name, {})) == price


def test_cost_is_tokens_times_price() -> None:
    """Per million tokens, input and output apart."""
    assert Price(input=2.0, output=8.0).cost_usd(500_000, 250_000) == pytest.approx(3.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not toml [",
        "date = 2026-01-01\nsource = 'x'",
        "date = 1\nsource = 'x'\n[usd_per_million_tokens]\n'm' = 1",
        "date = 1\nsource = 'x'\n[usd_per_million_tokens]\n'm' = {input = 'a', output = 1}",
    ],
)
def test_a_broken_table_is_a_data_error(text: str) -> None:
    """A table of the wrong form is refused as a whole."""
    with pytest.raises(DataError, match="price table"):
        read_prices(text)
