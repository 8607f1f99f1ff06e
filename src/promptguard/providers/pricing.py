"""What a call costs: the price table, and how a model is found in it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from promptguard.errors import DataError
from promptguard.providers.registry import Target

_DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    @property
    def is_free(self) -> bool:
        """Whether a call costs nothing, however long it is."""
        return self.input == self.output == 0.0

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of one call."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000


FREE = Price(input=0.0, output=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices with the day and the place they were read."""

    date: str
    source: str
    prices: dict[str, Price]

    def price_of(self, target: Target) -> Price | None:
        """Return the price of a model, FREE for local and `:free` ones, None where unknown."""
        if target.provider.is_free or target.model.endswith(":free"):
            return FREE
        name = target.model
        if target.provider.name != "openrouter":
            name = f"{target.provider.name}/{name}"
        return self.prices.get(name) or self.prices.get(_DATED.sub("", name))


def read_prices(text: str) -> PriceTable:
    """Read a table from TOML; raises DataError where it has the wrong form."""
    try:
        body = tomllib.loads(text)
        prices = {
            name: Price(input=float(row["input"]), output=float(row["output"]))
            for name, row in body["usd_per_million_tokens"].items()
        }
        return PriceTable(date=str(body["date"]), source=str(body["source"]), prices=prices)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise DataError("The price table is broken; compare it with the shipped one.") from None


@cache
def shipped_prices() -> PriceTable:
    """Return the table that came with the package."""
    return read_prices((files("promptguard") / "data" / "prices.toml").read_text("utf-8"))
