"""Prompts that hold what a user typed or a document beside the application's own words.

An application often puts both into one prompt: "Translate the following sentence: ...". The slot is
filled with honest inputs and with ones that try to leave the task, and documents with and without
an order stand behind the request they came for. Either way the pair shares all but what was put in.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.records import read

HELD_OUT_SHARE = 0.08
INLINE_SHARE = 0.2  # of the composed pairs that are short enough
LONGEST_INLINE = 1500
SLOT = "{INPUT}"
FRAMES = (
    "{task}\n\n{body}",
    "{body}\n\n{task}",
    '{task}\n"""\n{body}\n"""',
    "Context:\n{body}\n\nQuestion: {task}\nAnswer:",
    "<document>\n{body}\n</document>\n{task}",
    "### Instruction\n{task}\n\n### Input\n{body}\n\n### Response",
    "{task}\n---\n{body}\n---",
    "Use only the text below to answer.\n\n{body}\n\n{task}",
    "[data]\n{body}\n[/data]\n\n[task] {task}",
    "User request: {task}\nRetrieved: {body}",
)

Row = dict[str, Any]


def slot_pairs(corpus: Path, *, is_held: bool) -> Iterator[Row]:
    """Yield every template with an honest and a hijacking input, whole and as a system prompt."""
    for number, entry in enumerate(read(corpus / "slots.jsonl")):
        digest = hashlib.sha256(entry["template"].encode()).digest()[0] / 256
        if (digest < HELD_OUT_SHARE) != is_held:
            continue
        for place, sides in enumerate(zip(entry["honest"], entry["hijack"], strict=False)):
            name = f"slot-{number}-{place}"
            for label, typed in enumerate(sides):
                whole = entry["template"].replace(SLOT, typed)
                yield _row("message", whole, label, name, entry["lang"])
                row = _row("context", typed, label, f"{name}-system", entry["lang"])
                yield row | {"system": entry["system"]}


def inline(rows: list[Row], rng: random.Random) -> list[Row]:
    """Return some of the composed documents as one message with the request they came for."""
    pairs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["said"][0][1] and len(row["said"][1][1]) <= LONGEST_INLINE:
            pairs[row["pair"]].append(row)
    whole = [pair for pair in pairs.values() if len(pair) == 2]
    made = []
    for pair in rng.sample(whole, int(INLINE_SHARE * len(whole))):
        frame = rng.choice(FRAMES)
        for row in pair:
            (_, task), (_, body) = row["said"]
            text = frame.format(task=task, body=body)
            name = f"inline-{row['pair']}"
            made.append(_row("message", text, row["attack"], name, row["lang"]))
    return made


def _row(task: str, text: str, label: int, name: str, lang: str) -> Row:
    return {
        "task": task,
        "system": "",
        "said": [["user", text]],
        "attack": label,
        "session": label,
        "kinds": (1, -1, -1) if label else (0, 0, 0),
        "source": f"authored_{name.split('-')[0]}",
        "lang": lang,
        "pair": name,
        "authored": True,
        "category": "injection" if label else "benign_hard_negative",
        "id": f"{name}-{task}-{label}",
    }
