"""The report of a validation run: its values and their one JSON form.

Whoever shows a report (command line, Markdown, page, dashboard) shows `Summary.headline`; those
numbers are computed once, when the report is made, and carry their own labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from promptguard.errors import DataError
from promptguard.runs.intervals import Measure

SCHEMA = "promptguard.validation/2"
_LARGEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file by its name and content."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A contender's settings as JSON, the weights behind them, and a hash of both.

    Of the rules that they name, too; the hash is the settings' own where they name no file. The
    JSON leaves out the store, and passwords in addresses.
    """

    name: str
    sha256: str
    settings: str
    weights: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that a run depended on; equal manifests promise equal verdicts.

    `cases` is a hash of those that were taken, `sample` how they were drawn; empty where all were.
    """

    files: tuple[DataFile, ...] = ()
    cases: str = ""
    sample: str = ""
    seed: int = 0
    contenders: tuple[Configured, ...] = ()
    model: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    python: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line of the data that could not be used, by its number."""

    file: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One number that sums a contender up. `label` says of what it is and over which records.

    `higher_is_better` is None where neither direction is (latency, cost).
    """

    key: str
    label: str
    measure: Measure
    digits: int = 3
    unit: str = ""
    higher_is_better: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Measures of one source, language or category, or of all records pooled.

    `auc` and the recalls hold the group's attacks against the benign cases of all groups;
    `auc_within` against its own, where it has at least twenty of both.
    """

    name: str
    attacks: int
    benign: int
    recall: Measure = field(default_factory=Measure)
    precision: Measure = field(default_factory=Measure)
    false_positive_rate: Measure = field(default_factory=Measure)
    f1: Measure = field(default_factory=Measure)
    accuracy: Measure = field(default_factory=Measure)
    auc: Measure = field(default_factory=Measure)
    auc_within: Measure = field(default_factory=Measure)
    recall_at_1: Measure = field(default_factory=Measure)
    recall_at_5: Measure = field(default_factory=Measure)
    over_defence_accuracy: Measure = field(default_factory=Measure)
    calibration_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """Means over sources, each counting the same; rates over those that have the label."""

    auc: Measure = field(default_factory=Measure)
    recall_at_1: Measure = field(default_factory=Measure)
    recall_at_5: Measure = field(default_factory=Measure)
    auc_within: Measure = field(default_factory=Measure)
    recall: Measure = field(default_factory=Measure)
    false_positive_rate: Measure = field(default_factory=Measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Blocks against the first openly hostile turn, where that turn is known."""

    known: int = 0
    early: int = 0
    on_turn: int = 0
    late: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogues:
    """Conversations of at least two turns.

    `share_spoken` is the mean share of an attack's turns that were spoken when it was seen,
    `lead_turns` the mean number of turns still to come. `spoken_counts[i]` counts the attacks
    seen in the i-th tenth.
    """

    attacks: int = 0
    benign: int = 0
    detection_rate: Measure = field(default_factory=Measure)
    false_alarms_per_1000: Measure = field(default_factory=Measure)
    detection_turn: float | None = None
    share_spoken: float | None = None
    lead_turns: float | None = None
    spoken_counts: tuple[int, ...] = ()
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Targets: the first two above 0.90, reciprocal below 0.10, overall above 0.85."""

    manipulative_accuracy: Measure = field(default_factory=Measure)
    extractive_recall: Measure = field(default_factory=Measure)
    reciprocal_false_positives: Measure = field(default_factory=Measure)
    overall_accuracy: Measure = field(default_factory=Measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds for one turn; None where it was not measured."""

    turns: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Cases whose score lies between `low` and `high`: predicted risk and observed rate."""

    low: float
    high: float
    count: int
    mean_score: float
    attack_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A record judged wrongly, by its id and its risk turn by turn; no text.

    `signals` are the strongest signals at the turn that decided, with their nats.
    """

    id: str | int
    source: str
    category: str
    lang: str = ""
    score: float = 0.0
    flagged_turn: int | None = None
    is_hard: bool = False
    risks: tuple[float, ...] = ()
    signals: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """All mistakes of one kind: how many there are, and the worst of them."""

    count: int = 0
    listed: tuple[Mistake, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalShare:
    """A signal in the attacks that the engine caught.

    `alone` were caught by its evidence and the prior alone, `needed` would have been missed
    without it.
    """

    signal: str
    alone: int
    needed: int
    mean_nats: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalAttribution:
    """Which signals caught the attacks; `only_together` took several, `hard` the rules' veto."""

    caught: int
    hard: int
    only_together: int
    signals: tuple[SignalShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTest:
    """Attack conversations as they were and shuffled.

    `changed` is the share whose highest risk moved by at least 0.01, `mean_shift` the mean of
    the highest risk as spoken less that of the shuffled one.
    """

    conversations: int
    changed: float | None
    mean_shift: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One contender's measures; `judged` and `failed` add up to the cases given.

    `missed` are attacks that passed, `false_alarms` benign records that were flagged.
    `cost_usd` is None where the cost of some call is unknown.
    """

    name: str
    judged: int
    failed: int
    headline: tuple[Headline, ...]
    overall: Group | None = None
    macro: Macro = field(default_factory=Macro)
    by_source: tuple[Group, ...] = ()
    by_language: tuple[Group, ...] = ()
    by_category: tuple[Group, ...] = ()
    dialogues: Dialogues = field(default_factory=Dialogues)
    acceptance: Acceptance = field(default_factory=Acceptance)
    latency: Latency = field(default_factory=Latency)
    cost_usd: float | None = 0.0
    roc: tuple[tuple[float, float], ...] = ()
    reliability: tuple[Bin, ...] = ()
    missed: Mistakes = field(default_factory=Mistakes)
    false_alarms: Mistakes = field(default_factory=Mistakes)
    signals: SignalAttribution | None = None
    order: OrderTest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Two contenders on the same cases: how often only one was right, and McNemar's p."""

    first: str
    second: str
    only_first_right: int
    only_second_right: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Attacks caught. `matrix[i][j]` counts those that i caught and j missed.

    `only_by[i]` is what no other contender caught among the parts (for a combination: what no
    part caught); `only_together` what some combination caught and no part did.
    """

    names: tuple[str, ...] = ()
    caught: tuple[int, ...] = ()
    matrix: tuple[tuple[int, ...], ...] = ()
    only_by: tuple[int, ...] = ()
    only_together: int = 0
    attacks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of a run. `cases` were given to every contender; `skipped` records have no side;
    `faults` lines were bad, the first of them are listed. `command` made the report.
    """

    schema: str = SCHEMA
    created: float
    command: str = ""
    cases: int
    skipped: int = 0
    faults: int = 0
    bad_lines: tuple[BadLine, ...] = ()
    warnings: tuple[str, ...] = ()
    manifest: Manifest = field(default_factory=Manifest)
    contenders: tuple[Summary, ...]
    pairings: tuple[Pairing, ...] = ()
    attribution: Attribution = field(default_factory=Attribution)


def report_to_json(report: Report) -> str:
    """Return the JSON form."""
    return _REPORT.dump_json(report, indent=1).decode() + "\n"


def report_from_json(text: str | bytes, *, where: str = "This") -> Report:
    """Read the JSON form; raises DataError for another schema."""
    try:
        report = _REPORT.validate_json(text)
    except ValidationError:
        report = None
    # An older report may have all the fields and mean other numbers by them.
    if report is None or report.schema != SCHEMA or not report.contenders:
        raise DataError(f"{where} is not a report of the form {SCHEMA}.")
    return report


def read_report(path: Path) -> Report | None:
    """Return the report at `path`, None where there is no file; raises DataError for any other."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _LARGEST_BYTES:
            raise DataError(f"{path} is too large for a validation report.")
        return report_from_json(path.read_bytes(), where=str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


_REPORT: TypeAdapter[Report] = TypeAdapter(Report)
