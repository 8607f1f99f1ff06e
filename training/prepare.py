"""Step 3: turn the labelled sources into training, calibration and development examples.

    python -m training.prepare SHARED_DATA .train/data

Only records flagged permissive, SA or authored become training examples. Sources with other
flags serve as the development set, by which runs are compared. Test files are copied apart and
never mixed in. A pair stays on one side of every split.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from training.overlap import Overlap
from training.records import read

TRAINABLE = {"permissive", "SA", "authored"}
KINDS = {  # category -> (manipulative, extractive, harmful); -1: unknown
    "jailbreak": (1, -1, -1),
    "injection": (1, -1, -1),
    "indirect_injection": (1, -1, -1),
    "extraction": (-1, 1, 0),
    "harmful_request": (0, 0, 1),
    "escalation": (-1, -1, -1),
}
HELD_OUT_SHARE = 0.08
DEV_PER_SOURCE = 500
TURNS_PER_CONVERSATION = 3
MAX_CHARS = 6000

Record = dict[str, Any]


def said_by_user(record: Record) -> str:
    """Return all the user's words of a record."""
    return "\n".join(m["content"] or "" for m in record["messages"] if m["role"] != "assistant")


def digest(text: str) -> float:
    """Return a stable number in [0,1) for a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def turns(record: Record) -> list[list[str]]:
    """Return the conversation as [role, text] with system messages left out."""
    return [
        [m["role"], str(m.get("content") or "")[:MAX_CHARS]]
        for m in record["messages"]
        if m["role"] != "system" and m.get("content")
    ]


def example(record: Record, task: str, said: list[list[str]], label: int) -> Record:
    """Return one training example."""
    kinds = KINDS.get(record["category"], (-1, -1, -1)) if label else (0, 0, 0)
    return {
        "task": task,
        "said": said,
        "attack": label,
        "kinds": kinds,
        "source": record["source"],
        "lang": record["lang"],
        "pair": record.get("pair"),
        "authored": record["flag"] == "authored",
        "category": record["category"],
        "id": record["id"],
    }


def examples_of(record: Record, rng: random.Random) -> Iterator[Record]:
    """Yield the message and context examples one record gives."""
    said = turns(record)
    users = [i for i, (role, _) in enumerate(said) if role in ("user", "tool")]
    if not users:
        return
    label = int(record["label"] == "attack")
    if len(users) == 1:
        yield example(record, "message", [said[users[0]]], label)
        yield example(record, "context", said, label)
        return
    yield example(record, "context", said, label)
    if label:
        yield from attack_prefixes(record, said, users, rng)
    else:
        for index in rng.sample(users, min(TURNS_PER_CONVERSATION, len(users))):
            yield example(record, "message", [said[index]], 0)
        cut = rng.choice(users)
        yield example(record, "context", said[: cut + 1], 0)


def attack_prefixes(
    record: Record, said: list[list[str]], users: list[int], rng: random.Random
) -> Iterator[Record]:
    """Yield prefixes of an attack: innocent before its first open turn, an attack from there.

    `attack_turn` counts user turns from 0.
    """
    start = record.get("attack_turn")
    if start is None:
        return
    if start > 1:
        before = rng.randrange(0, start - 1)
        yield example(record, "context", said[: users[before] + 1], 0)
        yield example(record, "message", [said[users[before]]], 0)
    if start < len(users) - 1:
        yield example(record, "context", said[: users[start] + 1], 1)


def near(record: Record) -> str:
    """Return what keeps a record's relatives together: its pair, else its text."""
    return record.get("pair") or json.dumps(record["messages"])[:400]


def authored_records(shared: Path, corpus: Path) -> Iterable[Record]:
    """Yield the authored records of the shared and of this project's corpus."""
    for folder in (shared / "authored", corpus):
        for path in sorted(folder.glob("*.jsonl")):
            yield from read(path)


def public_records(shared: Path, corpus: Path, pairs: set[str | None]) -> Iterator[Record]:
    """Yield the public training records, without those found mislabelled on reading.

    A public request for which an innocent twin was written forms a pair with it.
    """
    mild = set((corpus / "mild_ids.txt").read_text(encoding="utf-8").split())
    for record in read(shared / "train.jsonl.gz"):
        if record["id"] in mild:
            continue
        if record["id"] in pairs:
            record["pair"] = record["id"]
        yield record


def write(path: Path, rows: list[Record]) -> None:
    """Write examples as gzipped JSONL."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def main() -> None:
    """Write train, held (authored and permissive, for calibration), dev and test examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", type=Path, default=Path("training/corpus"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    train: list[Record] = []
    held: list[Record] = []
    held_whole: list[Record] = []
    dev: dict[tuple[str, str], list[Record]] = {}
    counts: Counter[str] = Counter()
    tests = list(read(options.shared / "public_test.jsonl.gz"))
    overlap = Overlap(said_by_user(record) for record in tests)
    found = list(authored_records(options.shared, options.corpus))
    authored = [record for record in found if not overlap.repeats(said_by_user(record))]
    counts["(authored, too near a test record)"] = len(found) - len(authored)
    public = list(public_records(options.shared, options.corpus, {r.get("pair") for r in authored}))
    for record in [*public, *authored]:
        if record["flag"] in TRAINABLE:
            side = held if digest(near(record)) < HELD_OUT_SHARE else train
            side.extend(examples_of(record, rng))
            if side is held:
                held_whole.append(record)
            counts[record["source"]] += 1
        else:
            dev.setdefault((record["source"], record["label"]), []).append(record)
    chosen = [
        record
        for rows in dev.values()
        for record in rng.sample(rows, min(DEV_PER_SOURCE, len(rows)))
    ]
    write(options.out / "train.jsonl.gz", train)
    write(options.out / "held.jsonl.gz", held)
    write(options.out / "held_records.jsonl.gz", held_whole)
    write(options.out / "dev.jsonl.gz", [whole(r) for r in chosen])
    write(
        options.out / "test.jsonl.gz",
        [whole(r) for r in tests],
    )
    manifest = {"sources": dict(sorted(counts.items())), "train": len(train), "held": len(held)}
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1))
    print(json.dumps(manifest, indent=1))


def whole(record: Record) -> Record:
    """Return a record as one example to be scored as a whole."""
    said = turns(record)
    users = sum(role in ("user", "tool") for role, _ in said)
    return example(
        record, "message" if users <= 1 else "context", said, int(record["label"] == "attack")
    )


if __name__ == "__main__":
    main()
