"""Stored conversations judged on a Ray cluster, by the same function as on one machine."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Any

from promptguard.batch.verdict_lines import Opener, lines_of, open_judge
from promptguard.config import ControllerConfig
from promptguard.errors import ConfigError
from promptguard.records import Fault, Record

BATCH = 16
BLOCK = 8192


def judge_on_ray(
    items: Iterable[Record | Fault],
    config: ControllerConfig,
    *,
    jobs: int = 1,
    opener: Opener = open_judge,
) -> Generator[str, None, None]:
    """Yield one line per item, in the order of the items; `jobs` actors hold a judge each.

    Uses the cluster that the process is connected to, else one of its own. Items travel in
    blocks, so that a long input need not fit in memory.
    """
    ray = require_ray()
    opener(config)  # what cannot be opened fails here, with its own error, not in an actor
    # A caller's own cluster is used as it is.
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rest = iter(items)
    while block := list(islice(rest, BLOCK)):
        yield from _judge_block(ray, block, config, jobs, opener)


class _Judging:
    """The actor: opens its judge once, then turns packed items into lines."""

    def __init__(self, config: ControllerConfig, opener: Opener) -> None:
        self._judge = opener(config)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        items = [pickle.loads(packed) for packed in batch["item"]]  # noqa: S301  packed below
        return {"number": batch["number"], "line": lines_of(self._judge, items)}


def _judge_block(
    ray: Any, block: Sequence[Record | Fault], config: ControllerConfig, jobs: int, opener: Opener
) -> list[str]:
    # Packed, because Ray's rows hold plain columns and a record is a value of ours.
    rows = [{"number": n, "item": pickle.dumps(item)} for n, item in enumerate(block)]
    # At least one piece per actor, or some of them would have nothing to do.
    pieces = max(jobs, -(-len(rows) // BATCH))
    judged = ray.data.from_items(rows, override_num_blocks=min(pieces, len(rows))).map_batches(
        _Judging,
        fn_constructor_args=(config, opener),
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=min(jobs, len(rows))),
    )
    # Actors finish in any order; the number brings the lines back into that of the items.
    lines = {int(row["number"]): str(row["line"]) for row in judged.iter_rows()}
    return [lines[number] for number in range(len(block))]


def require_ray() -> Any:
    """Return the package; ConfigError where it is not installed."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError(
            "The ray engine needs Ray; install it with `pip install ayniguard[ray]`."
        ) from None
    return ray
