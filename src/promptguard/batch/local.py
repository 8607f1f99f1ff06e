"""Stored conversations judged on this machine, by several processes where asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from promptguard.batch.line import lines_of, lost_line, open_judge
from promptguard.config import ControllerConfig
from promptguard.records import Fault, Record
from promptguard.turns.judge import TurnJudge
from promptguard.workers import work_off

Opener = Callable[[ControllerConfig], TurnJudge]


def judge_locally(
    items: Iterable[Record | Fault],
    config: ControllerConfig,
    *,
    jobs: int = 1,
    opener: Opener = open_judge,
) -> Iterator[str]:
    """Yield one line per item, in the order of the items.

    `opener` makes the judge of each process and must be picklable where there are several.
    """
    return work_off(partial(_open, opener, config), items, jobs=jobs, lost=lost_line)


def _open(
    opener: Opener, config: ControllerConfig
) -> Callable[[Sequence[Record | Fault]], Sequence[str]]:
    return partial(lines_of, opener(config))
