"""The report of a run: one value with a stable JSON form, from which the pages are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from promptguard.config import ControllerConfig
from promptguard.errors import DataError
from promptguard.risk.weights import Weights, load_weights, shipped_weights
from promptguard.validation.compare import Attribution, Pairing, attribution, pairings
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Dataset
from promptguard.validation.intervals import ROUNDS
from promptguard.validation.manifest import Manifest
from promptguard.validation.order import OrderTest
from promptguard.validation.runner import Outcomes
from promptguard.validation.summary import Summary, summary_of

SCHEMA = "promptguard.validation/1"
MOST_FAULTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line of the data that could not be used, by its number."""

    file: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of a run. `cases` were given to every contender; `skipped` records have no side;
    `faults` lines were bad, the first of them are listed.
    """

    schema: str
    created: float
    cases: int
    skipped: int
    faults: int
    bad_lines: tuple[BadLine, ...]
    manifest: Manifest
    contenders: tuple[Summary, ...]
    pairings: tuple[Pairing, ...]
    attribution: Attribution


def report_of(
    dataset: Dataset,
    contenders: Sequence[Contender],
    outcomes: Outcomes,
    manifest: Manifest,
    *,
    now: float,
    seed: int,
    rounds: int = ROUNDS,
    orders: Mapping[str, OrderTest] | None = None,
) -> Report:
    """Measure every contender and compare them."""
    return Report(
        schema=SCHEMA,
        created=now,
        cases=len(dataset.cases),
        skipped=dataset.skipped,
        faults=len(dataset.faults),
        bad_lines=tuple(
            BadLine(file=fault.file, number=fault.number, reason=fault.reason)
            for fault in dataset.faults[:MOST_FAULTS]
        ),
        manifest=manifest,
        contenders=tuple(
            summary_of(
                contender,
                dataset.cases,
                outcomes[contender.name],
                seed=seed,
                rounds=rounds,
                weights=_weights(contender),
                order=(orders or {}).get(contender.name),
            )
            for contender in contenders
        ),
        pairings=pairings(dataset.cases, outcomes),
        attribution=attribution(dataset.cases, outcomes, contenders),
    )


def report_to_json(report: Report) -> str:
    """Return the JSON form."""
    return _REPORT.dump_json(report, indent=1).decode()


def report_from_json(text: str | bytes) -> Report:
    """Read the JSON form; raises DataError for another schema."""
    try:
        report = _REPORT.validate_json(text)
    except ValidationError:
        raise DataError(f"This is not a report of the form {SCHEMA}.") from None
    if report.schema != SCHEMA:
        raise DataError(f"This is not a report of the form {SCHEMA}.")
    return report


def _weights(contender: Contender) -> Weights | None:
    if not isinstance(contender.settings, ControllerConfig):
        return None
    path = contender.settings.weights
    return load_weights(Path(path)) if path else shipped_weights()


_REPORT: TypeAdapter[Report] = TypeAdapter(Report)
