"""Fuzz: `python -m fuzz.run [--target NAME] [--cases N] [--seed N] [--keep FOLDER]`.

With atheris installed its coverage guides the mutations; without, a seeded mutator of known
inputs makes the cases (`--no-guided`), so that a run can be repeated. A case that breaks a promise
is shortened and written to the folder, as JSON; put it into `tests/fuzz/corpus` to have it tested
for good.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.mutator import mutated
from fuzz.targets import TARGETS

_MOST_KEPT = 20
_SHRINKS = 300


def failures(target: str, cases: int, seed: int) -> Iterator[tuple[bytes, Exception]]:
    """Yield the cases of one run that break a promise of `target`, and how."""
    source = random.Random(f"{target}:{seed}")
    for _ in range(cases):
        data = mutated(source, target)
        error = error_of(target, data)
        if error is not None:
            yield data, error


def shortened(target: str, data: bytes, error: Exception) -> bytes:
    """Return a shorter case that fails in the same way."""
    size, tries = max(1, len(data) // 2), 0
    while size and tries < _SHRINKS:
        for at in range(0, len(data), size):
            tries += 1
            shorter = data[:at] + data[at + size :]
            found = error_of(target, shorter)
            if type(found) is type(error) and str(found) == str(error):
                data = shorter
                break
        else:
            size //= 2
    return data


def error_of(target: str, data: bytes) -> Exception | None:
    """Return what a case breaks, None where it breaks nothing."""
    try:
        TARGETS[target](data)
    except Exception as error:  # whatever is raised is what is looked for
        return error
    return None


def keep(folder: Path, target: str, data: bytes, error: Exception) -> Path:
    """Write a case as JSON, named by what broke."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{target}-{type(error).__name__.lower()}-{zlib.crc32(str(error).encode()):08x}.json"
    body = {
        "target": target,
        "broke": f"{type(error).__name__}: {error}"[:200],
        "data": base64.b64encode(data).decode(),
    }
    path = folder / name
    path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return path


def _guided(target: str, options: argparse.Namespace) -> int:
    """Fuzz with atheris, in a process of its own: libFuzzer ends the one that it runs in."""
    numbers = (str(options.cases), str(options.seed), str(options.keep))
    command = (sys.executable, "-m", "fuzz.guided", target, *numbers)
    return subprocess.run(command, check=False).returncode


def _has_atheris() -> bool:
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


def main() -> int:
    """Fuzz one target or all; the status is 1 where something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=(*TARGETS, "all"), default="all")
    parser.add_argument("--cases", type=int, default=1_000_000, help="Cases per target.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--guided",
        action=argparse.BooleanOptionalAction,
        default=_has_atheris(),
        help="Let coverage guide the mutations; needs atheris.",
    )
    parser.add_argument("--keep", type=Path, default=Path("artifacts/fuzz"))
    options = parser.parse_args()
    names = tuple(TARGETS) if options.target == "all" else (options.target,)
    fuzz = _guided if options.guided else _mutated
    broke = [fuzz(name, options) for name in names]
    return int(any(broke))


class Found:
    """What one run over a target has tried and broken."""

    def __init__(self, target: str, folder: Path) -> None:
        self.cases = 0
        self._target = target
        self._folder = folder
        self._ways: set[str] = set()
        self._began = time.monotonic()

    def note(self, data: bytes, error: Exception) -> None:
        """Keep a case that breaks something in a way not seen before."""
        way = f"{type(error).__name__}: {error}"[:120]
        if way in self._ways or len(self._ways) >= _MOST_KEPT:
            return
        self._ways.add(way)
        path = keep(self._folder, self._target, shortened(self._target, data, error), error)
        print(f"{self._target}: {way} -> {path}", flush=True)

    def report(self) -> int:
        """Print what was tried; returns how many ways to break were found."""
        took_s = time.monotonic() - self._began
        print(
            f"{self._target}: {self.cases} cases in {took_s:.0f} s, {len(self._ways)} broke",
            flush=True,
        )
        return len(self._ways)


def _mutated(target: str, options: argparse.Namespace) -> int:
    found = Found(target, options.keep)
    for data, error in failures(target, options.cases, options.seed):
        found.note(data, error)
    found.cases = options.cases
    return found.report()


if __name__ == "__main__":
    sys.exit(main())
