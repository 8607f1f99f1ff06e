"""Work spread over processes keeps its order, loses nothing and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from promptguard.errors import ConfigError
from promptguard.workers import default_jobs, map_ordered

PARENT = """
import sys
sys.path.insert(0, {here!r})
from functools import partial
from test_workers import open_waiter
from promptguard.workers import map_ordered

if __name__ == "__main__":
    print("begun", flush=True)
    list(map_ordered(partial(open_waiter, {folder!r}), range(4), jobs=2, lost=int, chunk=1))
"""


def double_all(items: Sequence[int]) -> list[int]:
    for item in items:
        if item == 13:
            os._exit(1)
    return [2 * item for item in items]


def open_doubler() -> object:
    return double_all


def open_nothing() -> object:
    raise ConfigError("cannot open")


def wait_forever(folder: str, items: Sequence[int]) -> list[int]:
    (Path(folder) / str(os.getpid())).touch()
    threading.Event().wait()
    return list(items)


def open_waiter(folder: str) -> object:
    return partial(wait_forever, folder)


def until(condition: object, seconds: float = 30.0) -> bool:
    """Wait for a condition; False where it does not come true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        threading.Event().wait(0.02)
    return False


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_one_job_stays_in_this_process() -> None:
    """Results come in order, lazily, without any process."""
    drawn = []

    def items() -> Iterator[int]:
        for number in range(10):
            drawn.append(number)
            yield number

    results = map_ordered(open_doubler, items(), jobs=1, lost=lambda _: -1, chunk=4)
    assert next(results) == 0
    assert len(drawn) == 4
    assert list(results) == [2 * number for number in range(1, 10)]


def test_several_jobs_keep_the_order_and_isolate_a_killer() -> None:
    """An item that kills its process is lost alone; all others are done, in order."""
    found = list(map_ordered(open_doubler, range(40), jobs=2, lost=partial(int.__neg__), chunk=8))
    assert found == [-13 if n == 13 else 2 * n for n in range(40)]


def test_a_worker_that_cannot_open_raises_its_own_error() -> None:
    """A configuration error in a process is the caller's to see."""
    with pytest.raises(ConfigError, match="cannot open"):
        list(map_ordered(open_nothing, range(3), jobs=2, lost=lambda _: None))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    """Even in the middle of a piece, and even where the parent is killed."""
    script = tmp_path / "parent.py"
    folder = tmp_path / "pids"
    folder.mkdir()
    script.write_text(PARENT.format(here=str(Path(__file__).parent), folder=str(folder)))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as parent:
        try:
            assert until(lambda: len(list(folder.iterdir())) == 2)
            pids = [int(path.name) for path in folder.iterdir()]
            start = time.monotonic()
            parent.send_signal(how)
            parent.wait(timeout=20)
            assert until(lambda: not any(map(is_alive, pids)), seconds=5)
            assert time.monotonic() - start < 3
        finally:
            parent.kill()  # or a failure would wait for it without end


def test_default_jobs_is_at_least_one() -> None:
    """There is always someone to work."""
    assert 1 <= default_jobs() <= 8
