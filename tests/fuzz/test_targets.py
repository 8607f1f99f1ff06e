"""Cases that once broke something stay fixed, and a short run finds no new ones."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest

from fuzz.mutator import mutated
from fuzz.run import failures, keep, shortened
from fuzz.seeds import SEEDS
from fuzz.targets import TARGETS, Broken

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
_CASES = [pytest.param(path, id=path.stem) for path in CORPUS]


@pytest.mark.parametrize("path", _CASES)
def test_a_found_case_stays_fixed(path: Path) -> None:
    """What a fuzzing run found once is answered now."""
    case = json.loads(path.read_text(encoding="utf-8"))
    TARGETS[case["target"]](base64.b64decode(case["data"]))


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_keep_every_promise(target: str) -> None:
    """What the mutator starts from is sound."""
    for seed in SEEDS[target]:
        TARGETS[target](seed)


@pytest.mark.parametrize("target", TARGETS)
def test_a_short_run_breaks_nothing(target: str) -> None:
    """A few hundred mutated cases raise nothing but the package's own errors."""
    assert list(failures(target, 300, seed=7)) == []


def test_a_run_can_be_repeated() -> None:
    """The same seed makes the same cases."""
    first, second = random.Random(3), random.Random(3)
    assert [mutated(first, "text") for _ in range(20)] == [
        mutated(second, "text") for _ in range(20)
    ]


def test_a_failing_case_is_shortened_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is needed to fail is left, and the file says what broke."""

    def target(data: bytes) -> None:
        if b"!" in data:
            raise Broken("no exclamation")

    monkeypatch.setitem(TARGETS, "loud", target)
    short = shortened("loud", b"a long text! with one mark", Broken("no exclamation"))
    assert short == b"!"
    case = json.loads(keep(tmp_path, "loud", short, Broken("no exclamation")).read_text())
    assert case == {"target": "loud", "broke": "Broken: no exclamation", "data": "IQ=="}
