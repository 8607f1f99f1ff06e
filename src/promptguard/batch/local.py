"""Stored conversations judged on this machine, by several processes where asked."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

from promptguard.batch.verdict_lines import Opener, lines_of, lost_line, open_judge
from promptguard.config import ControllerConfig
from promptguard.records import Fault, Record
from promptguard.workers import map_ordered


def judge_locally(
    items: Iterable[Record | Fault],
    config: ControllerConfig,
    *,
    jobs: int = 1,
    opener: Opener = open_judge,
) -> Generator[str, None, None]:
    """Yield one line per item, in the order of the items.

    `opener` makes the judge of each process and must be picklable where there are several.
    """
    open_worker = partial(_open, opener, config)
    # One record at a time: an interrupt keeps whole chunks alone, and a record can take seconds.
    return map_ordered(open_worker, items, jobs=jobs, lost=lost_line, chunk=1)


def _open(
    opener: Opener, config: ControllerConfig
) -> Callable[[Sequence[Record | Fault]], Sequence[str]]:
    return partial(lines_of, opener(config))
