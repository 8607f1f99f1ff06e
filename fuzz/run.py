"""Fuzz: `python -m fuzz.run [--target NAME] [--cases N] [--seed N] [--keep FOLDER]`.

With atheris installed its coverage guides the mutations; without, a seeded mutator of known
inputs makes the cases, so that a run can be repeated. A case that breaks a promise is shortened
and written to the folder, as JSON; put it into `tests/fuzz/corpus` to have it tested for good.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.mutator import MAX_BYTES, mutated
from fuzz.targets import TARGETS

_MOST_KEPT = 20
_SHRINKS = 300


def failures(target: str, cases: int, seed: int) -> Iterator[tuple[bytes, Exception]]:
    """Yield the cases of one run that break a promise of `target`, and how."""
    source = random.Random(f"{target}:{seed}")
    for _ in range(cases):
        data = mutated(source, target)
        error = _error(target, data)
        if error is not None:
            yield data, error


def shortened(target: str, data: bytes, error: Exception) -> bytes:
    """Return a shorter case that fails in the same way."""
    size, tries = max(1, len(data) // 2), 0
    while size and tries < _SHRINKS:
        for at in range(0, len(data), size):
            tries += 1
            shorter = data[:at] + data[at + size :]
            found = _error(target, shorter)
            if type(found) is type(error) and str(found) == str(error):
                data = shorter
                break
        else:
            size //= 2
    return data


def _error(target: str, data: bytes) -> Exception | None:
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


def _guided(target: str, cases: int) -> None:
    import atheris  # an extra of whoever fuzzes: it needs a compiler to install

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-runs={cases}", f"-max_len={MAX_BYTES}"], TARGETS[target])
    atheris.Fuzz()


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
    parser.add_argument("--keep", type=Path, default=Path("artifacts/fuzz"))
    options = parser.parse_args()
    names = tuple(TARGETS) if options.target == "all" else (options.target,)
    if len(names) == 1 and _has_atheris():
        _guided(names[0], options.cases)
        return 0
    return sum(_report(name, options) for name in names) and 1


def _report(target: str, options: argparse.Namespace) -> int:
    began, ways = time.monotonic(), set[str]()
    for data, error in failures(target, options.cases, options.seed):
        way = f"{type(error).__name__}: {error}"[:120]
        if way not in ways and len(ways) < _MOST_KEPT:
            ways.add(way)
            path = keep(options.keep, target, shortened(target, data, error), error)
            print(f"{target}: {way} -> {path}", flush=True)
    print(f"{target}: {options.cases} cases in {time.monotonic() - began:.0f} s, {len(ways)} broke")
    return len(ways)


if __name__ == "__main__":
    sys.exit(main())
