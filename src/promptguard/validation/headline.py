"""The numbers that sum a contender up: one set, each labelled with what it is measured over."""

from __future__ import annotations

from promptguard.runs.intervals import Measure
from promptguard.runs.report import Acceptance, Dialogues, Group, Headline, Latency, Macro
from promptguard.validation.groups import LEAST_OF_BOTH

# Key, label, digits, unit, and whether higher is better.
_NUMBERS = (
    ("auc", "AUC, mean over attack sources", 3, "", True),
    ("recall_at_1", "recall at 1 % FPR, mean over sources", 3, "", True),
    ("recall_at_5", "recall at 5 % FPR, mean over sources", 3, "", True),
    ("auc_within", "AUC within sources of both labels", 3, "", True),
    ("recall", "recall as configured, mean over sources", 3, "", True),
    ("false_positive_rate", "false positives as configured, mean over sources", 3, "", False),
    ("over_defence_accuracy", "innocent look-alikes that pass, all records", 3, "", True),
    ("calibration_error", "calibration error, all records", 3, "", None),
    ("dialogue_detection_rate", "conversations: attacks detected", 3, "", True),
    ("dialogue_false_alarms_per_1000", "conversations: false alarms per 1,000", 1, "", False),
    ("share_spoken", "conversations: share of the attack spoken when seen", 3, "", None),
    ("lead_turns", "conversations: turns of lead before the last", 2, "", None),
    ("manipulative_accuracy", "manipulative accuracy, all records", 3, "", None),
    ("extractive_recall", "extractive recall, all records", 3, "", None),
    ("reciprocal_false_positives", "reciprocal false positives, all records", 3, "", None),
    ("overall_accuracy", "overall accuracy, all records", 3, "", None),
    ("latency_p50", "turn latency p50", 1, "ms", None),
    ("latency_p95", "turn latency p95", 1, "ms", None),
    ("latency_p99", "turn latency p99", 1, "ms", None),
    ("cost", "cost", 4, "USD", None),
)


def headline_of(
    macro: Macro,
    overall: Group,
    talks: Dialogues,
    accepted: Acceptance,
    latency: Latency,
    cost_usd: float | None,
) -> tuple[Headline, ...]:
    """Return the headline; without intervals where the sample is too small to have any."""
    values = (
        *(macro.auc, macro.recall_at_1, macro.recall_at_5, macro.auc_within, macro.recall),
        *(macro.false_positive_rate, overall.over_defence_accuracy, overall.calibration_error),
        *(talks.detection_rate, talks.false_alarms_per_1000, talks.share_spoken, talks.lead_turns),
        *(accepted.manipulative_accuracy, accepted.extractive_recall),
        *(accepted.reciprocal_false_positives, accepted.overall_accuracy),
        *(latency.p50_ms, latency.p95_ms, latency.p99_ms, cost_usd),
    )
    is_small = min(overall.attacks, overall.benign) < LEAST_OF_BOTH
    found = []
    for (key, label, digits, unit, is_better), value in zip(_NUMBERS, values, strict=True):
        measure = value if isinstance(value, Measure) else Measure(value=value)
        found.append(
            Headline(
                key=key,
                label=label,
                measure=Measure(value=measure.value) if is_small else measure,
                digits=digits,
                unit=unit,
                higher_is_better=is_better,
            )
        )
    return tuple(found)
