"""The trial cases that come with the evaluation types: prompts and whether they are attacks."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from promptguard.errors import DataError
from promptguard.evaluators.prompts import shipped_prompts


class TrialCase(BaseModel):
    """One prompt whose judgement is beyond dispute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    is_attack: bool
    system: str
    user: str


def trial_cases() -> tuple[TrialCase, ...]:
    """Return the shipped cases."""
    raw = shipped_prompts().joinpath("cases.json").read_text(encoding="utf-8")
    try:
        return _CASES.validate_json(raw)
    except ValidationError as error:
        raise DataError(f"The trial cases are broken: {error.error_count()} faults.") from None


_CASES: TypeAdapter[tuple[TrialCase, ...]] = TypeAdapter(tuple[TrialCase, ...])
