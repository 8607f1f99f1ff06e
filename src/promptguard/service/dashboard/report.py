"""The validation report as the quality page reads it: the parts it shows, and no others."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from promptguard.errors import DataError

SCHEMA = "promptguard.validation/1"
_LARGEST = 64 * 1024 * 1024


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Measure(_Part):
    """A value with its 95 % interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class Group(_Part):
    """Measures of one source, language or category."""

    name: str
    attacks: int
    benign: int
    recall: Measure = Measure()
    false_positive_rate: Measure = Measure()
    auc: Measure = Measure()
    recall_at_1: Measure = Measure()


class Dialogues(_Part):
    """How conversations of several turns were seen."""

    attacks: int = 0
    benign: int = 0
    detection_rate: Measure = Measure()
    false_alarms_per_1000: Measure = Measure()
    share_spoken: float | None = None
    lead_turns: float | None = None


class SignalShare(_Part):
    """What a signal did in the attacks that were caught."""

    signal: str
    alone: int
    needed: int
    mean_nats: float


class Signals(_Part):
    """Which signals caught the attacks."""

    caught: int
    hard: int
    only_together: int
    signals: tuple[SignalShare, ...]


class Latency(_Part):
    """Milliseconds for one turn."""

    p50_ms: float | None = None
    p99_ms: float | None = None


class Contender(_Part):
    """One configuration and what was measured of it."""

    name: str
    judged: int
    failed: int
    overall: Group
    by_source: tuple[Group, ...] = ()
    by_language: tuple[Group, ...] = ()
    by_category: tuple[Group, ...] = ()
    dialogues: Dialogues = Dialogues()
    latency: Latency = Latency()
    signals: Signals | None = None


class Manifest(_Part):
    """What the run was made of."""

    model: str = ""
    seed: int = 0
    versions: tuple[tuple[str, str], ...] = ()


class Report(_Part):
    """A validation run."""

    form: str = Field(alias="schema")
    created: float
    cases: int
    skipped: int = 0
    faults: int = 0
    manifest: Manifest = Manifest()
    contenders: tuple[Contender, ...] = Field(min_length=1)


def read_report(path: Path) -> Report | None:
    """Return the report at `path`, None where there is no file; raises DataError for any other."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _LARGEST:
            raise DataError(f"{path} is too large for a validation report.")
        report = Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise DataError(f"{path} is not a report of the form {SCHEMA}.") from None
    if report.form != SCHEMA:
        raise DataError(f"{path} is not a report of the form {SCHEMA}.")
    return report
