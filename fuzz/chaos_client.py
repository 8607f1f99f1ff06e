"""A guard under chaos: `python -m fuzz.chaos_client JSON` takes turns until it is killed.

It prints what it tries and what was acknowledged, one line each; a turn that fails is tried again,
as a client would. The JSON names the store, the sessions with the number of their next turn, and
how the clock jumps and when the disk is full.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from promptguard.config import ControllerConfig
from promptguard.controller import Controller
from promptguard.errors import StoreError
from promptguard.fil.engine import FrozenInstinct
from promptguard.turns.input import TurnInput
from promptguard.turns.judge import TurnJudge

_PAUSE_S = 0.02
_DAY_S = 86_400.0


def main(plan: dict[str, object]) -> None:
    """Take turns until the plan's number is reached."""
    asyncio.run(_take_turns(plan))


async def _take_turns(plan: dict[str, object]) -> None:
    numbers = dict(plan["sessions"])  # type: ignore[call-overload]
    source = random.Random(str(plan["seed"]))
    config = ControllerConfig(store=str(plan["store"]), use_model=False)
    judge = TurnJudge.open(config, instinct=FrozenInstinct.load(["en"]))
    clock = _jumping(source) if plan["clock_jumps"] else time.time
    full_from = plan["full_from"]
    async with Controller(config, judge=judge, clock=clock) as controller:
        for taken in range(int(str(plan["turns"]))):
            if taken == full_from:
                _fill_disk(str(plan["store"]))
            session = source.choice(sorted(numbers))
            await _turn(controller, session, numbers[session])
            numbers[session] += 1


async def _turn(controller: Controller, session: str, number: int) -> None:
    while True:
        _say("try", session, number)
        try:
            result = await controller.judge_turn(session, TurnInput(text=f"question {number}"))
        except StoreError:
            _say("failed", session, number)
            _empty_disk()
            await asyncio.sleep(_PAUSE_S)
            continue
        _say("ok", session, number)
        break
    try:
        await controller.record_reply(result, f"answer {number}")
    except StoreError:
        _say("unanswered", session, number)
        _empty_disk()


def _jumping(source: random.Random) -> Callable[[], float]:
    """Return a clock that is set by hours and days, back as often as forth."""
    return lambda: time.time() + source.uniform(-_DAY_S, _DAY_S)


def _fill_disk(store: str) -> None:
    """Let no file of the store grow any more."""
    path = Path(urlsplit(store).path)
    sizes = [file.stat().st_size for file in path.parent.glob(f"{path.name}*")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(sizes), resource.RLIM_INFINITY))


def _empty_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _say(what: str, session: str, number: int) -> None:
    print(what, session, number, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
