"""Examples of two answers of an assistant, the later of which takes back the earlier, or does not.

Written for this project (`corpus/rubric/answers_*.jsonl`, `stances.jsonl`): answers that hold a
position, that give it up, and that only sound as if they did; and `facts_*.jsonl`: what somebody
said of himself or of a matter, and what later fits it or does not. Public: talks in which each
answer is labelled as holding its position or giving way, and pairs of sentences. Ordinary talks
hold many pairs of answers, nearly all of which agree.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from promptguard.model.network import ASSISTANT, CLS, SEP, USER, Window, shorten
from training.records import is_held_out, read

# Of each message of the user and of each answer, that a window shows.
ASKED_TOKENS, ANSWER_TOKENS = 32, 88
HELD_OUT_SHARE = 0.12
ORDINARY = 6000
MOST_CHARS = 4000
TRAINABLE_SOURCES = ("sycon_ethical", "daccord_fr")
DEV_SOURCES = ("cdconv_train", "citod", "decode_pairs")
DEV_PER_LABEL = 400
Record = dict[str, Any]
Told = tuple[str, str]  # what was asked, and the answer


def answers_window(
    asked: Sequence[int], earlier: Sequence[int], pressed: Sequence[int], later: Sequence[int]
) -> Window:
    """Lay two answers out in one window, each behind the user's message that it answers."""
    tokens, speakers = [CLS], [USER]
    for question, answer in ((asked, earlier), (pressed, later)):
        for who, ids, most in (
            (USER, question, ASKED_TOKENS),
            (ASSISTANT, answer, ANSWER_TOKENS),
        ):
            part = [*shorten(ids, most), SEP]
            tokens += part
            speakers += [who] * len(part)
    return tokens, speakers


def pair_of(earlier: Told, later: Told, label: int, record: Record, **names: Any) -> Record:
    """Return one example: the earlier answer and the later, each behind what it answers."""
    said = [
        [role, text[:MOST_CHARS]]
        for asked, answer in (earlier, later)
        for role, text in (("user", asked), ("assistant", answer))
    ]
    made = {
        "task": "answers", "system": "", "said": said, "attack": label, "session": label,
        "kinds": (0, 0, 0), "source": record["source"], "lang": record["lang"], "pair": None,
        "authored": False, "category": record.get("kind", "answers"), "id": record["id"],
    }  # fmt: skip
    return made | names


def written(corpus: Path) -> Iterator[Record]:
    """Yield the pairs that the written records give; all of one record share their pair."""
    for path in sorted((corpus / "rubric").glob("answers_*.jsonl")):
        for line in read(path):
            record = line | {"source": f"authored_{path.stem}"}
            asked, (press, again) = record["asked"], record["pressed"]
            (hold, held), (way, gone) = record["holds"], record["gives_way"]
            for earlier, later, label in (
                ((asked, hold), (press, held), 0),
                ((asked, hold), (press, record["near"]), 0),
                ((asked, way), (again, gone), 0),
                ((press, held), (again, hold), 0),
                ((asked, hold), (press, gone), 1),
                ((press, held), (again, way), 1),
                ((asked, way), (press, held), 1),
            ):
                yield pair_of(earlier, later, label, record, pair=record["id"], authored=True)
    for path in sorted((corpus / "rubric").glob("facts_*.jsonl")):
        for number, line in enumerate(read(path)):
            record = line | {"source": f"authored_{path.stem}"}
            asked, then = record["asked"], record["then"]
            kept, broken = record["keeps"], record["breaks"]
            for earlier, later, label in (
                (record["answer"], kept[0], 0),
                # One of the near misses, which fit both answers: more would tell by their form.
                (record["answer"], kept[1 + number % 2], 0),
                *((record["answer"], one, 1) for one in broken),
                # Behind another answer it is the other way round: no text alone is the label.
                *((record["other"], one, 0) for one in broken),
                (record["other"], kept[0], 1),
            ):
                names = {"pair": record["id"], "authored": True}
                yield pair_of((asked, earlier), (then, later), label, record, **names)
    for line in read(corpus / "rubric" / "stances.jsonl"):
        record = line | {"source": "authored_stances"}
        first, press = record["first"], record["user"] or record["first"]
        hold, way = record["holds"], record["grants"]
        names = {"pair": record["id"], "authored": True}
        yield pair_of((first, hold), (press, way), 1, record, **names)
        yield pair_of((first, way), (press, hold), 1, record, **names)


def exchanges(record: Record) -> list[Told]:
    """Return each answer of the assistant with what the user said before it."""
    found, asked = [], ""
    for message in record["messages"]:
        if message["role"] == "user":
            asked = message["content"] or ""
        elif message["role"] == "assistant" and message["content"]:
            found.append((asked, message["content"]))
    return found


def labelled(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the pairs of the public sources."""
    for record in records:
        told = exchanges(record)
        align = (record.get("meta") or {}).get("align")
        if align and len(align) == len(told):
            for (i, earlier), (j, later) in combinations(enumerate(told), 2):
                yield pair_of(earlier, later, int(align[i] != align[j]), record)
        elif len(told) >= 2:
            label = int(record["label"] == "contradiction")
            yield pair_of(told[0] if len(told) == 2 else told[-2], told[-1], label, record)


def ordinary(records: Iterable[Record], rng: random.Random) -> Iterator[Record]:
    """Yield pairs of answers of ordinary talks, which are taken to agree."""
    for record in records:
        told = exchanges(record)
        if len(told) >= 2 and all(len(answer) > 20 for _, answer in told[:2]):
            first, second = sorted(rng.sample(range(len(told)), 2))
            one = record | {"source": "ordinary_answers", "kind": "ordinary"}
            yield pair_of(told[first], told[second], 0, one)


def answer_examples(shared: Path, corpus: Path, talks: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the examples by part: train, held, dev."""
    rng = random.Random(7)
    public: dict[str, list[Record]] = {}
    for record in read(shared / "contradiction_train.jsonl.gz"):
        public.setdefault(record["source"], []).append(record)
    found = list(written(corpus))
    found += [e for source in TRAINABLE_SOURCES for e in labelled(public[source])]
    calm = list(ordinary(talks, rng))
    found += rng.sample(calm, min(ORDINARY, len(calm)))
    parts: dict[str, list[Record]] = {"train": [], "held": [], "dev": []}
    for one in found:
        # All pairs of a talk stay on one side.
        parts["held" if is_held_out(str(one["id"]), HELD_OUT_SHARE) else "train"].append(one)
    for source in DEV_SOURCES:
        pairs = list(labelled(public[source]))
        for label in (0, 1):
            alike = [one for one in pairs if one["attack"] == label]
            parts["dev"] += rng.sample(alike, min(DEV_PER_LABEL, len(alike)))
    return parts
