"""Step 2: turn the labelled sources into training, held-out and development examples.

    python -m training.prepare SHARED_DATA .train/data

Only records flagged permissive, SA or authored become training examples. Sources with other
flags serve as the development set, by which runs are compared: whole sources that train nothing.
Test files are not read, except to leave out authored texts that nearly repeat a test record. A
pair stays on one side of every split.

Three tasks: `message`, one text alone; `context`, the last user turn in the light of the system
prompt and all turns before; `document`, untrusted content beside what the user asked for. Messages
and talks in other languages carry their gloss.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from promptguard.model.gloss import Glossary, load_glossary
from training.compose import composed, insertions
from training.overlap import Overlap
from training.records import read
from training.slots import inline, slot_pairs

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
MAX_SYSTEM_CHARS = 1500
# Innocent text of a language: at most so many times its attacks, or language becomes the label.
ORDINARY_PER_ATTACK, ORDINARY_LEAST, ORDINARY_ENGLISH = 3, 700, 14_000
ORDINARY_APPS = 3000

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


def system_of(record: Record) -> str:
    """Return the system prompt of a record, cut to a bound."""
    parts = [str(m.get("content") or "") for m in record["messages"] if m["role"] == "system"]
    return "\n".join(parts)[:MAX_SYSTEM_CHARS]


def example(
    record: Record, task: str, said: list[list[str]], label: int, session: int | None = None
) -> Record:
    """Return one training example; `session` says whether an attack was seen at all so far."""
    kinds = KINDS.get(record["category"], (-1, -1, -1)) if label else (0, 0, 0)
    return {
        "task": task,
        "system": system_of(record) if task == "context" else "",
        "said": said,
        "attack": label,
        "session": label if session is None else session,
        "kinds": kinds,
        "source": record["source"],
        "lang": record["lang"],
        "pair": record.get("pair"),
        "authored": record["flag"] == "authored",
        "category": record["category"],
        "id": record["id"],
    }


def examples_of(record: Record, rng: random.Random, early: Mapping[str, int]) -> Iterator[Record]:
    """Yield the examples one record gives; `early` has the turns that `early_turns` names."""
    label = int(record["label"] == "attack")
    said = turns(record)
    contents = [i for i, (role, _) in enumerate(said) if role == "tool"]
    if contents:
        yield from documents(record, said, contents, label)
        if label:
            return
    said = [turn for turn in said if turn[0] != "tool"]
    users = [i for i, (role, _) in enumerate(said) if role == "user"]
    if not users:
        return
    if len(users) == 1:
        # What a system prompt decides cannot be told from the message alone.
        if not record["source"].startswith("authored2_lay"):
            yield example(record, "message", [said[users[0]]], label)
        yield example(record, "context", said[: users[0] + 1], label)
        return
    if record.get("last_turn_harmless"):
        yield example(record, "context", said[: users[-1] + 1], 0, session=1)
        return
    yield example(record, "context", said[: users[-1] + 1], label)
    cut = early.get(record.get("pair") or "")
    if cut is not None:
        name = {"source": f"{record['source']}_early", "pair": f"{record['pair']}-early"}
        yield example(record | name, "context", said[: users[min(cut, len(users) - 1)] + 1], label)
    if label:
        yield from attack_prefixes(record, said, users, rng, is_plain=cut is None)
    else:
        for index in rng.sample(users, min(TURNS_PER_CONVERSATION, len(users))):
            yield example(record, "message", [said[index]], 0)
        cut = rng.choice(users)
        yield example(record, "context", said[: cut + 1], 0)


def documents(
    record: Record, said: list[list[str]], contents: list[int], label: int
) -> Iterator[Record]:
    """Yield untrusted contents with the request they came for; of an attack, the last one."""
    for index in contents[-1:] if label else contents[:2]:
        asked = [text for role, text in said[:index] if role == "user"]
        yield example(
            record, "document", [["user", asked[-1] if asked else ""], said[index]], label
        )


def early_turns(records: Iterable[Record]) -> dict[str, int]:
    """Return, by pair, the turn before the open one in talks that differ from their first turn on.

    Where two talks begin alike, nothing before the open turn tells them apart. Where they do not,
    the course itself shows the aim, and a guard that waits for the open turn comes late.
    """
    sides: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        if record.get("pair") and record["kind"] == "multi":
            sides[record["pair"]][record["label"]] = record
    found = {}
    for pair, talks in sides.items():
        if len(talks) == 2 and (start := talks["attack"].get("attack_turn") or 0) > 1:
            first, other = (
                next(t for r, t in turns(talk) if r == "user") for talk in talks.values()
            )
            if first != other:
                found[pair] = start - 1
    return found


def attack_prefixes(
    record: Record,
    said: list[list[str]],
    users: list[int],
    rng: random.Random,
    *,
    is_plain: bool,
) -> Iterator[Record]:
    """Yield prefixes of an attack: innocent before its first open turn, an attack from there.

    `attack_turn` counts user turns from 0. Without `is_plain` the course shows the aim earlier.
    """
    start = record.get("attack_turn")
    if start is None:
        return
    if start > 1:
        before = rng.randrange(0, start - 1)
        if is_plain:
            yield example(record, "context", said[: users[before] + 1], 0)
        yield example(record, "message", [said[users[before]]], 0)
    if start < len(users) - 1:
        yield example(record, "context", said[: users[start] + 1], 1)


def near(record: Record) -> str:
    """Return what keeps a record's relatives together: its pair, its app, else its text."""
    app = (record.get("meta") or {}).get("app")
    return record.get("pair") or app or json.dumps(record["messages"])[:400]


def authored_records(shared: Path, corpus: Path) -> Iterable[Record]:
    """Yield the authored records of the shared and of this project's corpus."""
    for folder in (shared / "authored", shared / "authored2", corpus):
        for path in sorted(folder.glob("*.jsonl")):
            yield from (record for record in read(path) if "messages" in record)


def public_records(shared: Path, corpus: Path, pairs: set[str | None]) -> Iterator[Record]:
    """Yield the public training records, without those found mislabelled on reading.

    Of the source with weak labels, those whose label is plain on reading, as it was read.
    A public request for which an innocent twin was written forms a pair with it.
    """
    mild, weak_attacks, weak_innocent = (
        set((corpus / f"{name}_ids.txt").read_text(encoding="utf-8").split())
        for name in ("mild", "weak_attack", "weak_innocent")
    )
    for record in read(shared / "train.jsonl.gz"):
        if record["id"] in mild:
            continue
        if record["id"] in pairs:
            record["pair"] = record["id"]
        yield record
    for record in read(shared / "train_weak.jsonl.gz"):
        if record["id"] in weak_attacks:
            yield record
        elif record["id"] in weak_innocent:
            yield record | {"label": "benign", "category": "benign_hard_negative"}


def ordinary_records(shared: Path, attacks: Counter[str], rng: random.Random) -> list[Record]:
    """Return innocent prompts, talks, application prompts and documents, balanced by language."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    apps: dict[str, list[Record]] = defaultdict(list)
    for record in read(shared / "ordinary.jsonl.gz"):
        roles = {m["role"] for m in record["messages"]}
        if record["source"] == "lobe_agents":
            apps[record["meta"]["app"]].append(record)
        elif roles == {"user"} and len(record["messages"]) == 1 and record["label"] == "benign":
            found[(record["lang"], "single")].append(record)
        else:
            found[(record["lang"], "other")].append(record)
    kept = [rng.choice(rows) for rows in apps.values()]
    kept = rng.sample(kept, min(len(kept), ORDINARY_APPS))
    kept += [
        rng.choice(rows) for rows in rng.choices(list(apps.values()), k=ORDINARY_APPS - len(kept))
    ]
    for (lang, kind), rows in found.items():
        most = max(ORDINARY_LEAST, ORDINARY_PER_ATTACK * attacks[lang])
        if lang == "en":
            most = ORDINARY_ENGLISH
        kept += evenly(rows, len(rows) if kind == "other" else most, rng)
    return kept


def evenly(rows: list[Record], most: int, rng: random.Random) -> list[Record]:
    """Return at most `most` records, the small sources whole and the large ones cut alike."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for row in rng.sample(rows, len(rows)):
        groups[row["source"]].append(row)
    kept: list[Record] = []
    for left, group in enumerate(sorted(groups.values(), key=len)):
        share = (most - len(kept)) // (len(groups) - left)
        kept += group[:share]
    return kept


def translations(records: list[Record], authored: list[Record]) -> list[list[str]]:
    """Return [language, English, translation] of the prompts that were translated by hand."""
    english = {r["id"]: said_by_user(r) for r in authored if r["lang"] == "en"}
    return [
        [r["lang"], english[r["translated_from"]], said_by_user(r)]
        for r in records
        if r.get("translated_from") in english
    ]


def add_glosses(rows: Iterable[Record], glossary: Glossary) -> None:
    """Add the gloss of what the user said in another language, turn by turn, in place."""
    for row in rows:
        if row["task"] in ("message", "context") and row["lang"] != "en":
            own = [text for role, text in row["said"] if role == "user"]
            glosses = [glossary.gloss(text) for text in own]
            if any(glosses):
                row["gloss"] = [
                    ["user", gloss or text] for text, gloss in zip(own, glosses, strict=True)
                ]


def write(path: Path, rows: Iterable[Record | list[str]]) -> None:
    """Write examples as gzipped JSONL."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def whole(record: Record) -> Record:
    """Return a record as one example to be scored as a whole, up to the last user turn."""
    said = turns(record)
    label = int(record["label"] == "attack")
    contents = [i for i, (role, _) in enumerate(said) if role == "tool"]
    if contents and len(said) <= 2:
        return next(documents(record, said, contents, label))
    users = [index for index, (role, _) in enumerate(said) if role == "user"]
    said = said[: users[-1] + 1] if users else said
    return example(record, "message" if len(users) <= 1 else "context", said, label)


def main() -> None:
    """Write train, held (for calibration) and dev examples, and the held-out records whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", type=Path, default=Path("training/corpus"))
    parser.add_argument(
        "--gloss", type=Path, default=Path("src/promptguard/data/model/gloss.npz"), help="step 1c"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    counts: Counter[str] = Counter()
    tests = [
        said_by_user(record)
        for name in ("public_test", "public_test_layers")
        for record in read(options.shared / f"{name}.jsonl.gz")
    ]
    overlap = Overlap(tests)
    found = list(authored_records(options.shared, options.corpus))
    authored = [record for record in found if not overlap.repeats(said_by_user(record))]
    counts["(authored, too near a test record)"] = len(found) - len(authored)
    public = list(public_records(options.shared, options.corpus, {r.get("pair") for r in authored}))
    attacks = Counter(
        r["lang"]
        for r in [*public, *authored]
        if r["flag"] in TRAINABLE and r["label"] == "attack" and r["kind"] == "single"
    )
    ordinary = ordinary_records(options.shared, attacks, rng)
    sides: dict[bool, list[Record]] = {True: [], False: []}
    dev: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in [*public, *authored, *ordinary]:
        if record["flag"] in TRAINABLE:
            sides[digest(near(record)) < HELD_OUT_SHARE].append(record)
            counts[record["source"]] += 1
        else:
            dev[(record["source"], record["label"])].append(record)
    early = early_turns(authored)
    print(f"{len(early)} pairs of talks that differ from their first turn on")
    examples = {
        side: [e for r in rows for e in examples_of(r, rng, early)] for side, rows in sides.items()
    }
    for side, rows in examples.items():
        made = composed(rows, insertions(options.corpus, is_held=side), rng)
        slots = list(slot_pairs(options.corpus, is_held=side))
        within = inline(made, rng)
        print(
            f"{'held' if side else 'train'}: {len(made)} documents composed, {len(within)} of them"
            f" also in one message with the request, {len(slots)} prompts with a slot"
        )
        rows += [*made, *within, *slots]
    chosen = [
        record
        for rows in dev.values()
        for record in rng.sample(rows, min(DEV_PER_SOURCE, len(rows)))
    ]
    scored = [whole(record) for record in chosen]
    add_glosses([*examples[True], *examples[False], *scored], load_glossary(options.gloss))
    write(options.out / "train.jsonl.gz", examples[False])
    write(options.out / "held.jsonl.gz", examples[True])
    write(options.out / "held_records.jsonl.gz", sides[True])
    write(options.out / "prompts.jsonl.gz", translations(sides[False], authored))
    write(options.out / "dev_records.jsonl.gz", chosen)
    write(options.out / "dev.jsonl.gz", scored)
    tasks = Counter((e["task"], e["attack"]) for e in examples[False])
    manifest = {
        "sources": dict(sorted(counts.items())),
        "train": len(examples[False]),
        "held": len(examples[True]),
        "tasks": {f"{task} {label}": count for (task, label), count in sorted(tasks.items())},
    }
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1))
    print(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
