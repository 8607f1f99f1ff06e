"""Two versions of one evaluation prompt on the same records: which one judges better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from promptguard.config import PromptGuardConfig
from promptguard.core.decision import Decision
from promptguard.errors import ConfigError
from promptguard.evaluation import BatchItem, PromptGuard
from promptguard.evaluators.metrics import ReciprocityMetrics
from promptguard.evaluators.prompts import (
    EvaluationPrompt,
    evaluation_prompt,
    evaluation_prompts,
    user_prompt,
)
from promptguard.usage import Usage
from promptguard.validation.compare import mcnemar
from promptguard.validation.dataset import Case
from promptguard.validation.judging import prompts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersion:
    """One text to compare; `evaluation_type` is the name under which a guard asks it."""

    name: str
    evaluation_type: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionResult:
    """How one version judged the records, and what all its calls cost.

    `failed` records got no verdict; they count as judged wrongly.
    """

    version: PromptVersion
    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int
    failed: int
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedVerdict:
    """A record on which the versions differ: block, pass, or failed."""

    id: str | int
    label: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionComparison:
    """Both results, and whether they differ beyond chance (McNemar's exact test)."""

    records: int
    first: VersionResult
    second: VersionResult
    only_first_right: int
    only_second_right: int
    p_value: float
    alpha: float
    is_regression: bool
    changed: tuple[ChangedVerdict, ...]


def resolve_versions(
    first: str, second: str, *, evaluation_type: str | None = None
) -> tuple[PromptVersion, PromptVersion]:
    """Find two versions, each NAME, NAME@VERSION or the path of a text file.

    A file is a candidate text for the type that the other one, or `evaluation_type`, names.
    Raises ConfigError where that is not one and the same type.
    """
    given = (first, second)
    named = {item.partition("@")[0] for item in given if not Path(item).is_file()}
    if evaluation_type is not None:
        named.add(evaluation_type)
    if len(named) > 1:
        raise ConfigError(
            f"Compare versions of one evaluation type, not {', '.join(sorted(named))}."
        )
    if not named:
        raise ConfigError("Two files do not say which evaluation type they are for; give --type.")
    (kind,) = named
    current = user_prompt(kind)
    one, other = (
        _candidate(Path(item), current) if Path(item).is_file() else _shipped(item, current)
        for item in given
    )
    return one, other


def compare_versions(
    cases: Sequence[Case],
    versions: tuple[PromptVersion, PromptVersion],
    config: PromptGuardConfig,
    *,
    alpha: float = 0.05,
    make_guard: Callable[[PromptGuardConfig], PromptGuard] = PromptGuard,
) -> VersionComparison:
    """Judge every case under both versions; a case is blocked where one of its turns is."""
    (first, said_first), (second, said_second) = (
        _judge(cases, version, make_guard(_asking(version, config))) for version in versions
    )
    differing = [
        (case, one, other)
        for case, one, other in zip(cases, said_first, said_second, strict=True)
        if one != other
    ]
    only_first = sum(one == _expected(case) for case, one, _ in differing)
    only_second = sum(other == _expected(case) for case, _, other in differing)
    p_value = mcnemar(only_first, only_second)
    return VersionComparison(
        records=len(cases),
        first=first,
        second=second,
        only_first_right=only_first,
        only_second_right=only_second,
        p_value=p_value,
        alpha=alpha,
        is_regression=only_first > only_second and p_value < alpha,
        changed=tuple(
            ChangedVerdict(id=case.id, label=case.label, first=one, second=other)
            for case, one, other in differing
        ),
    )


def comparison_as_json(comparison: VersionComparison) -> str:
    """Return the whole comparison as JSON."""
    return _COMPARISON.dump_json(comparison, indent=2).decode()


def _asking(version: PromptVersion, config: PromptGuardConfig) -> PromptGuardConfig:
    # One type is merged alike by all; the configured merge may want weights.
    plain = {"ensemble_strategy": "max_falsehood", "weights": {}}
    return config.model_copy(update={"evaluation_type": version.evaluation_type, **plain})


def _judge(
    cases: Sequence[Case], version: PromptVersion, guard: PromptGuard
) -> tuple[VersionResult, tuple[str, ...]]:
    turns = [[prompt for _, prompt in prompts_of(case)] for case in cases]
    try:
        # In one batch, so that the guard's concurrency is used over all records.
        found = iter(guard.evaluate_batch_sync(turn for case in turns for turn in case))
        rows = guard.usage_report()
    finally:
        guard.close_sync()
    verdicts = tuple(_verdict(tuple(islice(found, len(case)))) for case in turns)
    counts = [(case.is_attack, said) for case, said in zip(cases, verdicts, strict=True)]
    result = VersionResult(
        version=version,
        true_positives=counts.count((True, "block")),
        false_positives=counts.count((False, "block")),
        true_negatives=counts.count((False, "pass")),
        false_negatives=counts.count((True, "pass")),
        failed=verdicts.count("failed"),
        usage=sum((row.usage for row in rows), Usage()),
    )
    return result, verdicts


def _verdict(found: Sequence[BatchItem]) -> str:
    decisions = []
    for item in found:
        # A setting that makes no sense is nothing that a version of a text did wrong.
        if isinstance(item, ConfigError):
            raise item
        decisions.append(item.decision if isinstance(item, ReciprocityMetrics) else None)
    if not decisions or None in decisions:
        return "failed"
    return "block" if Decision.BLOCK in decisions else "pass"


def _expected(case: Case) -> str:
    return "block" if case.is_attack else "pass"


def _shipped(which: str, current: EvaluationPrompt) -> PromptVersion:
    prompt = evaluation_prompt(which)
    name = which if "@" in which else f"{current.name}@{prompt.version}"
    return PromptVersion(name=name, evaluation_type=which, sha256=prompt.sha256)


def _candidate(path: Path, current: EvaluationPrompt) -> PromptVersion:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{path} cannot be read as UTF-8 text.") from None
    if not text:
        raise ConfigError(f"{path} is empty; write what the judge is to look at.")
    prompt = replace(current, version=path.stem, text=text)
    # By its hash, so that a cache never takes an edited text for the one before.
    name = f"{current.name}@{prompt.sha256[:12]}"
    if name not in evaluation_prompts():
        evaluation_prompts().register(name)(prompt)
    return PromptVersion(name=str(path), evaluation_type=name, sha256=prompt.sha256)


_COMPARISON: TypeAdapter[VersionComparison] = TypeAdapter(VersionComparison)
