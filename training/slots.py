"""Prompts that hold what a user typed or a document beside the application's own words.

An application often puts both into one prompt: "Translate the following sentence: ...". The slot is
filled with honest inputs and with ones that try to leave the task, and documents with and without
an order stand behind the request they came for. Either way the pair shares all but what was put in.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.records import is_held_out, made_example, read

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
        if is_held_out(entry["template"], HELD_OUT_SHARE) != is_held:
            continue
        for place, sides in enumerate(zip(entry["honest"], entry["hijack"], strict=False)):
            name, lang, system = f"slot-{number}-{place}", entry["lang"], entry["system"]
            for label, typed in enumerate(sides):
                yield _row(entry["template"].replace(SLOT, typed), label, name, lang)
                yield _row(typed, label, f"{name}-system", lang, system=system)


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
            made.append(_row(text, row["attack"], f"inline-{row['pair']}", row["lang"]))
    return made


def _row(text: str, label: int, name: str, lang: str, *, system: str = "") -> Row:
    return made_example(
        "context" if system else "message",
        [["user", text]],
        label,
        pair=name,
        source=f"authored_{name.split('-')[0]}",
        lang=lang,
        categories=("benign_hard_negative", "injection"),
        system=system,
    )
