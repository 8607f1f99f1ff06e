"""The numbers that sum a contender up: one set, each labelled with what it is measured over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from promptguard.runs.intervals import Measure
from promptguard.runs.report import Acceptance, Dialogues, Group, Headline, Latency, Macro
from promptguard.validation.groups import LEAST_OF_BOTH


def headline_of(
    macro: Macro,
    overall: Group,
    dialogues: Dialogues,
    acceptance: Acceptance,
    latency: Latency,
    cost_usd: float | None,
) -> tuple[Headline, ...]:
    """Return the headline; without intervals where the sample is too small to have any."""
    found = (
        *_ranking(macro, overall),
        *_dialogues(dialogues),
        *_acceptance(acceptance),
        *_costs(latency, cost_usd),
    )
    if min(overall.attacks, overall.benign) >= LEAST_OF_BOTH:
        return found
    return tuple(replace(each, measure=Measure(value=each.measure.value)) for each in found)


def _ranking(macro: Macro, overall: Group) -> Iterator[Headline]:
    for key, label, measure, is_higher_better in (
        ("auc", "AUC, mean over attack sources", macro.auc, True),
        ("recall_at_1", "recall at 1 % FPR, mean over sources", macro.recall_at_1, True),
        ("recall_at_5", "recall at 5 % FPR, mean over sources", macro.recall_at_5, True),
        ("auc_within", "AUC within sources of both labels", macro.auc_within, True),
        ("recall", "recall as configured, mean over sources", macro.recall, True),
        (
            "false_positive_rate",
            "false positives as configured, mean over sources",
            macro.false_positive_rate,
            False,
        ),
        (
            "over_defence_accuracy",
            "innocent look-alikes that pass, all records",
            overall.over_defence_accuracy,
            True,
        ),
        (
            "calibration_error",
            "calibration error, all records",
            Measure(value=overall.calibration_error),
            None,
        ),
    ):
        yield Headline(key=key, label=label, measure=measure, higher_is_better=is_higher_better)


def _dialogues(found: Dialogues) -> Iterator[Headline]:
    yield Headline(
        key="dialogue_detection_rate",
        label="conversations: attacks detected",
        measure=found.detection_rate,
        higher_is_better=True,
    )
    yield Headline(
        key="dialogue_false_alarms_per_1000",
        label="conversations: false alarms per 1,000",
        measure=found.false_alarms_per_1000,
        digits=1,
        higher_is_better=False,
    )
    yield Headline(
        key="share_spoken",
        label="conversations: share of the attack spoken when seen",
        measure=Measure(value=found.share_spoken),
    )
    yield Headline(
        key="lead_turns",
        label="conversations: turns of lead before the last",
        measure=Measure(value=found.lead_turns),
        digits=2,
    )


def _acceptance(found: Acceptance) -> Iterator[Headline]:
    for key, label, measure in (
        (
            "manipulative_accuracy",
            "manipulative accuracy, all records",
            found.manipulative_accuracy,
        ),
        ("extractive_recall", "extractive recall, all records", found.extractive_recall),
        (
            "reciprocal_false_positives",
            "reciprocal false positives, all records",
            found.reciprocal_false_positives,
        ),
        ("overall_accuracy", "overall accuracy, all records", found.overall_accuracy),
    ):
        yield Headline(key=key, label=label, measure=measure)


def _costs(latency: Latency, cost_usd: float | None) -> Iterator[Headline]:
    for key, value in (
        ("p50", latency.p50_ms),
        ("p95", latency.p95_ms),
        ("p99", latency.p99_ms),
    ):
        yield Headline(
            key=f"latency_{key}",
            label=f"turn latency {key}",
            measure=Measure(value=value),
            digits=1,
            unit="ms",
        )
    yield Headline(key="cost", label="cost", measure=Measure(value=cost_usd), digits=4, unit="USD")
