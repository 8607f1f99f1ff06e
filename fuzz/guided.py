"""Fuzzes one target with atheris: `python -m fuzz.guided TARGET CASES SEED FOLDER`.

`fuzz.run` starts it where atheris is installed. The status is 1 where something broke.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

# What is imported here is instrumented, so that new paths through it guide the mutations.
with atheris.instrument_imports(include=["promptguard"]):
    from fuzz import targets  # noqa: F401

from fuzz.mutator import MAX_BYTES
from fuzz.run import Found, error_of
from fuzz.seeds import SEEDS


def main(target: str, cases: int, seed: int, folder: Path) -> None:
    """Fuzz from the seeds on; does not return."""
    found = Found(target, folder)

    def case(data: bytes) -> None:
        found.cases += 1
        error = error_of(target, data)
        if error is not None:
            found.note(data, error)
        if found.cases == cases:
            os._exit(int(found.report() > 0))

    with tempfile.TemporaryDirectory() as corpus:
        for number, each in enumerate(SEEDS[target]):
            Path(corpus, f"seed-{number}").write_bytes(each)
        limits = (f"-runs={cases}", f"-max_len={MAX_BYTES}", f"-seed={seed + 1}", "-verbosity=0")
        atheris.Setup([sys.argv[0], *limits, corpus], case)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
