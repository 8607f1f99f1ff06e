"""Dialogues of two answers, made of the texts that were written for the rubric.

`answers_*.jsonl` holds an assistant that keeps a position and one that gives it up, `facts_*.jsonl`
what somebody said and what later fits it or does not, `stances.jsonl` a claim with a reply that
holds against it and one that grants it. Many are hard on purpose: nothing that rules could go by
tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

Record = dict[str, Any]
Told = tuple[str, str]  # what was asked, and the answer


def dialogues(record: Record, path: Path) -> Iterator[Record]:
    """Yield the record itself, or the dialogues that a record of written answers gives."""
    if "messages" in record:
        yield record
        return
    for number, (first, then, is_contradiction) in enumerate(answers_of(record)):
        said = chain.from_iterable(
            ({"role": "user", "content": asked}, {"role": "assistant", "content": answer})
            for asked, answer in (first, then)
        )
        yield {
            "id": f"{record['id']}-{number}",
            "lang": record["lang"],
            "source": path.stem,
            "label": "contradiction" if is_contradiction else "consistent",
            "messages": list(said),
        }


def answers_of(record: Record) -> Iterator[tuple[Told, Told, bool]]:
    """Yield two answers, each with what was asked, and whether the later contradicts."""
    if "pressed" in record:
        asked, (press, again) = record["asked"], record["pressed"]
        (hold, held), (way, gone) = record["holds"], record["gives_way"]
        yield (asked, hold), (press, held), False
        yield (asked, hold), (press, record["near"]), False
        yield (asked, way), (again, gone), False
        yield (asked, hold), (press, gone), True
        yield (asked, way), (press, held), True
    elif "keeps" in record:
        first = (record["asked"], record["answer"])
        for label, texts in ((False, record["keeps"]), (True, record["breaks"])):
            for text in texts:
                yield first, (record["then"], text), label
    else:
        # Where nobody presses, the same is asked twice.
        asked, press = record["first"], record["user"] or record["first"]
        yield (asked, record["holds"]), (press, record["grants"]), True
        yield (asked, record["grants"]), (press, record["holds"]), True
