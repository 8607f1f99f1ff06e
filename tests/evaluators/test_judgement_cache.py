"""The cache of judgements."""

import os
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_judges import ATTACK, NORMAL, ScriptedJudge

from promptguard.evaluators.cache import CachingJudge, JudgementCache, cache_key
from promptguard.protocols import LayerJudgement, LayerTask
from promptguard.usage import Usage

MEGABYTE = 1024 * 1024


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def judgement(reasoning: str = "why") -> LayerJudgement:
    return LayerJudgement(
        value=ATTACK,
        evaluation_type="ayni_relational",
        model="m",
        reasoning=reasoning,
        usage=Usage(calls=1, cost_usd=0.5),
    )


def task(content: str = "text", kind: str = "ayni_relational", **more) -> LayerTask:
    return LayerTask(evaluation_type=kind, content=content, layer="USER", **more)


def cache_at(folder: Path, clock: Clock | None = None, max_bytes: int = MEGABYTE) -> JudgementCache:
    return JudgementCache(
        folder / "cache.db", ttl_s=60, max_bytes=max_bytes, clock=clock or Clock()
    )


def test_a_hit_says_so_and_costs_nothing(tmp_path: Path) -> None:
    """Value and reasoning come back, the price does not."""
    cache = cache_at(tmp_path)
    assert cache.get("k") is None
    cache.put("k", judgement())
    found = cache.get("k")
    assert found is not None
    assert (found.value, found.reasoning, found.is_cached) == (ATTACK, "why", True)
    assert found.usage == Usage()


def test_entries_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    """A new cache on the same file knows them."""
    first = cache_at(tmp_path)
    first.put("k", judgement())
    first.close()
    assert cache_at(tmp_path).get("k") is not None
    assert first.get("k") is not None


def test_an_entry_expires(tmp_path: Path) -> None:
    """From its age limit on it is judged anew."""
    clock = Clock()
    cache = cache_at(tmp_path, clock)
    cache.put("k", judgement())
    clock.now += 59.9
    assert cache.get("k") is not None
    clock.now += 0.1
    assert cache.get("k") is None
    assert cache.status().entries == 0


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    """The size stays within its bound, and what was just read stays."""
    clock = Clock()
    cache = cache_at(tmp_path, clock)
    for number in range(400):
        clock.now += 0.001
        cache.put(f"k{number}", judgement("x" * 2000))
    clock.now += 0.001
    assert cache.get("k0") is not None
    for number in range(400, 600):
        clock.now += 0.001
        cache.put(f"k{number}", judgement("x" * 2000))
    assert cache.status().size_bytes <= MEGABYTE
    assert cache.get("k0") is not None
    assert cache.get("k1") is None
    assert cache.get("k599") is not None


def test_no_more_entries_go_than_must(tmp_path: Path) -> None:
    """However great they are: of a full cache nine tenths stay."""
    clock = Clock()
    cache = cache_at(tmp_path, clock)
    for number in range(120):
        clock.now += 0.001
        cache.put(f"k{number}", judgement("x" * 10_000))
    assert 0.85 * MEGABYTE <= cache.status().size_bytes <= MEGABYTE
    assert cache.get("k119") is not None


def test_an_entry_written_twice_is_counted_once(tmp_path: Path) -> None:
    """The total does not drift."""
    cache = cache_at(tmp_path)
    cache.put("k", judgement())
    once = cache.status()
    cache.put("k", judgement())
    assert cache.status() == once


@pytest.mark.parametrize(
    "content", [b"this is not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_corrupt_file_is_put_aside_and_begun_anew(tmp_path: Path, content: bytes) -> None:
    """The evaluation goes on, and the fault is counted."""
    (tmp_path / "cache.db").write_bytes(content)
    cache = cache_at(tmp_path)
    assert cache.get("k") is None
    cache.put("k", judgement())
    assert cache.get("k") is not None
    assert cache.status().faults >= 1
    assert (tmp_path / "cache.db.corrupt").read_bytes() == content


def test_a_page_damaged_in_use_is_recovered_from(tmp_path: Path) -> None:
    """Damage beyond the header is found when the page is read."""
    cache = cache_at(tmp_path)
    for number in range(200):
        cache.put(f"k{number}", judgement("x" * 500))
    cache.close()
    path = tmp_path / "cache.db"
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xee" * (len(raw) - 4096)
    path.write_bytes(raw)
    cache.get("k1")
    cache.put("new", judgement())
    assert cache.get("new") is not None


def test_an_entry_that_makes_no_sense_is_a_miss(tmp_path: Path) -> None:
    """A value out of range in the file never becomes a judgement."""
    cache = cache_at(tmp_path)
    cache.put("k", judgement())
    with sqlite3.connect(tmp_path / "cache.db") as db:
        db.execute("UPDATE judgement SET value = '[2, 0, 0, \"\"]'")
    assert cache.get("k") is None


def test_a_place_that_cannot_be_written_is_a_cache_that_misses(tmp_path: Path) -> None:
    """No evaluation fails for it."""
    (tmp_path / "file").write_text("")
    cache = JudgementCache(tmp_path / "file" / "cache.db", ttl_s=60, max_bytes=MEGABYTE)
    cache.put("k", judgement())
    assert cache.get("k") is None
    assert cache.status().faults > 0


@pytest.mark.skipif(os.name == "nt", reason="POSIX file modes")
def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """Reasoning may quote what was judged."""
    cache_at(tmp_path).put("k", judgement())
    assert stat.S_IMODE((tmp_path / "cache.db").stat().st_mode) == 0o600


_WORKER = """
import sys
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.evaluators.cache import JudgementCache
from promptguard.protocols import LayerJudgement
cache = JudgementCache(sys.argv[1], ttl_s=60, max_bytes=1 << 20)
for number in range(100):
    found = LayerJudgement(value=Neutrosophic(0, 0, 1), evaluation_type="a", model="m")
    cache.put(f"{sys.argv[2]}-{number}", found)
    assert cache.get(f"{sys.argv[2]}-{number}") is not None
print(cache.status().faults)
"""


def test_many_processes_share_one_file(tmp_path: Path) -> None:
    """Four at once, each sees what it wrote, and nothing is lost."""
    path = tmp_path / "cache.db"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(path), str(number)], stdout=subprocess.PIPE
        )
        for number in range(4)
    ]
    assert [worker.communicate(timeout=60)[0].strip() for worker in workers] == [b"0"] * 4
    assert cache_at(tmp_path).status().entries == 400


def test_the_key_depends_on_everything_that_matters() -> None:
    """Type, prompt version, model, layer, turn, text and context."""
    base = task("text", context="c", turn=1)
    keys = {cache_key(base, model="m", version="1")}
    for changed in (
        replace(base, evaluation_type="relational_structure"),
        replace(base, content="text2"),
        replace(base, context="d"),
        replace(base, layer="SYSTEM"),
        replace(base, turn=2),
        replace(base, content="textc", context=""),
    ):
        keys.add(cache_key(changed, model="m", version="1"))
    keys.add(cache_key(base, model="n", version="1"))
    keys.add(cache_key(base, model="m", version="2"))
    assert len(keys) == 9
    assert cache_key(task("\ud800"), model="m", version="1")


async def test_a_type_added_to_an_ensemble_is_all_that_is_paid_for(tmp_path: Path) -> None:
    """Each evaluation type is kept on its own."""
    inner = ScriptedJudge(default=NORMAL)
    judge = CachingJudge(inner, cache_at(tmp_path), version_of=lambda kind: "1")
    first = await judge.judge(task())
    again = await judge.judge(task())
    other = await judge.judge(task(kind="relational_structure"))
    assert [first.is_cached, again.is_cached, other.is_cached] == [False, True, False]
    assert again == replace(first, is_cached=True, usage=Usage())
    assert len(inner.asked) == 2


async def test_a_new_prompt_version_is_judged_anew(tmp_path: Path) -> None:
    """Old answers belong to the old question."""
    inner = ScriptedJudge()
    cache = cache_at(tmp_path)
    for version in ("1", "2"):
        await CachingJudge(inner, cache, version_of=lambda kind, v=version: v).judge(task())
    assert len(inner.asked) == 2
