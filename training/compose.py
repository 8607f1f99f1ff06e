"""Documents with and without an order that is not the user's, composed from innocent ones.

Each innocent document is seen three ways: as it is, with an innocent sentence put in, and with an
order put in at the same place. The pair differs in that sentence alone, so that neither the
document, nor its language, nor the fact that something was put in tells the label.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from training.records import is_held_out, made_example, read

HELD_OUT_SHARE = 0.1
PER_SOURCE = 1500
SHORT_RESULTS = 4000
ENGLISH_ORDER = 0.2  # of the documents in another language
# Some callers judge contents without knowing the task, as FastMCP's adapter does.
MASKED_TASK = 0.3
REQUEST_AS_ORDER = 0.15
REQUEST = re.compile(
    r"(?:Write|Translate|Give|List|Explain|Summari[sz]e|Create|Generate|Tell|Make|Draft|Compose"
    r"|Describe|Convert|Rewrite|Find|Calculate|Suggest|Answer|Show|Plan|Help|Please)\b[^\n]+$"
)
LONGEST = 3000

Row = dict[str, Any]


@dataclass(frozen=True)
class Insertions:
    """Sentences by language: orders to whatever reads the document, and innocent ones."""

    orders: dict[str, list[str]]
    innocent: dict[str, list[str]]
    requests: list[str] = field(default_factory=list)


def insertions(corpus: Path, *, is_held: bool) -> Insertions:
    """Return the sentences of one side of the split."""
    sides = []
    for name in ("orders", "imperatives"):
        found: dict[str, list[str]] = defaultdict(list)
        for row in read(corpus / f"{name}.jsonl"):
            if is_held_out(row["text"], HELD_OUT_SHARE) == is_held:
                found[row["lang"]].append(row["text"])
        sides.append(dict(found))
    return Insertions(orders=sides[0], innocent=sides[1])


def put_in(text: str, sentence: str, place: float, joint: str) -> str:
    """Return `text` with `sentence` at a line or sentence end near `place` in [0,1]."""
    cuts = [0, len(text)]
    cuts += [i + 1 for i, ch in enumerate(text) if ch in "\n.。!?؟।"]
    aim = place * len(text)
    cut = min(cuts, key=lambda at: abs(at - aim))
    return f"{text[:cut].rstrip(' ')}{joint}{sentence}{joint}{text[cut:].lstrip(' ')}"


def in_json(text: str, sentence: str, place: float) -> str | None:
    """Return a JSON document with `sentence` in one of its strings, after its text or instead of
    it; None where the text is no JSON."""
    try:
        body = json.loads(text)
    except ValueError:
        return None
    leaves: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            if isinstance(value, str) and len(value) > 12:
                leaves.append((node, key))
            elif isinstance(value, (dict, list)):
                walk(value)

    if not isinstance(body, (dict, list)):
        return None
    walk(body)
    if not leaves:
        return None
    node, key = leaves[min(int(place * len(leaves)), len(leaves) - 1)]
    is_whole = len(text) % 2  # the same choice for both documents of a pair
    node[key] = sentence if is_whole else f"{node[key]} {sentence}"
    return json.dumps(body, ensure_ascii=False)


def shells(rng: random.Random, lines: list[str], sentence: str) -> tuple[str, str]:
    """Return a task and a short tool result that carries `sentence` in one field.

    `lines` fill the others. Drawn from `rng` alone: equal ones give results that differ in the
    sentence only.
    """

    def line() -> str:
        return rng.choice(lines)

    text = rng.choice(
        (sentence, f"{line()} {sentence}", f"{sentence} {line()}", f"{line()} {sentence} {line()}")
    )
    number = rng.randrange(100, 99999)
    name = rng.choice(("M. Okafor", "Lena Brandt", "j.tanaka", "Priya N.", "Tomás", "user_8812"))
    made: list[tuple[str, Any]] = [
        (
            "Check my inbox for new mail.",
            {"emails": [{"from": f"{name}@example.com", "subject": line(), "body": text}]},
        ),
        (
            "What do the reviews of this product say?",
            {"product_id": number, "reviews": [{"rating": 4, "reviewer": name, "content": text}]},
        ),
        ("Show me my notes.", {"notes": [{"id": f"N{number}", "title": line(), "content": text}]}),
        (
            "What is on my calendar this week?",
            {"events": [{"event_id": number, "title": line(), "description": text}]},
        ),
        (
            "Read the latest post of this account.",
            {"post_id": number, "author": name, "text": text},
        ),
        (
            "Search the web for this.",
            {"results": [{"title": line(), "snippet": line()}, {"title": line(), "snippet": text}]},
        ),
        (
            "Open the file and tell me what it says.",
            {"path": f"/home/docs/{number}.txt", "content": text},
        ),
        (
            "Get the details of this listing.",
            {"listing": {"id": number, "price": number % 900, "description": text}},
        ),
        (
            "Read my last messages.",
            [{"sender": name, "message": line()}, {"sender": name, "message": text}],
        ),
        (
            "What is the status of this ticket?",
            {"ticket": number, "status": "open", "comments": [text]},
        ),
        ("Show the patient's record.", {"patient": name, "notes": text, "allergies": []}),
        (
            "List the repositories I starred.",
            {"repos": [{"name": f"tool-{number}", "description": text}]},
        ),
    ]
    task, body = rng.choice(made)
    style = rng.random()
    if style < 0.5:
        return task, json.dumps(body, ensure_ascii=False)
    if style < 0.75:
        return task, str(body)
    return task, text


def composed(rows: list[Row], given: Insertions, rng: random.Random) -> list[Row]:
    """Return pairs of documents with an innocent sentence and with an order in one place."""
    given = replace(given, requests=asked_for(rows))
    innocent = [r for r in rows if r["task"] == "document" and not r["attack"]]
    by_source: dict[str, list[Row]] = defaultdict(list)
    for row in rng.sample(innocent, len(innocent)):
        by_source[row["source"]].append(row)
    made: list[Row] = []
    for source, found in by_source.items():
        for number, row in enumerate(found[:PER_SOURCE]):
            made += _pair(row, given, rng, f"doc-{source}-{number}")
    # Only sentences of documents may fill other fields: a user's request would be an order there.
    lines = statements(innocent)
    if lines:
        for number in range(SHORT_RESULTS if len(rows) > 20_000 else SHORT_RESULTS // 10):
            made += _short_pair(given, rng, lines, f"short-{number}")
    return made


def statements(documents: list[Row]) -> list[str]:
    """Return short English sentences of innocent documents, as filling for other fields.

    What users ask an assistant for must not serve: in a tool result it is an order.
    """
    found = []
    for row in documents:
        if row["lang"] == "en":
            parts = re.split(r"(?<=[.!?])\s+", row["said"][1][1][:LONGEST])
            found += [p for p in parts if 25 <= len(p) <= 140 and re.match(r"[A-Z][^{}<>|]+\.$", p)]
    return found


def asked_for(rows: list[Row]) -> list[str]:
    """Return short English requests of ordinary users; in a document nobody asked for them."""
    texts = [r["said"][0][1] for r in rows if r["task"] == "message" and not r["attack"]]
    return [text for text in dict.fromkeys(texts) if len(text) <= 140 and REQUEST.match(text)]


def _sentences(given: Insertions, lang: str, rng: random.Random) -> tuple[str, str] | None:
    wanted = lang if lang in given.orders and rng.random() >= ENGLISH_ORDER else "en"
    if not given.orders.get(wanted) or not given.innocent.get(wanted):
        return None
    orders = given.orders[wanted]
    if wanted == "en" and given.requests and rng.random() < REQUEST_AS_ORDER:
        orders = given.requests
    return rng.choice(given.innocent[wanted]), rng.choice(orders)


def _pair(row: Row, given: Insertions, rng: random.Random, name: str) -> list[Row]:
    chosen = _sentences(given, row["lang"], rng)
    if chosen is None:
        return []
    place, joint = rng.random(), rng.choice(("\n", "\n\n", " "))
    start = rng.randrange(0, max(1, len(row["said"][1][1]) - LONGEST))
    text = row["said"][1][1][start : start + rng.choice((400, 900, LONGEST))]
    task = "" if rng.random() < MASKED_TASK else row["said"][0][1]
    made = []
    for label, sentence in enumerate(chosen):
        body = in_json(text, sentence, place) or put_in(text, sentence, place, joint)
        made.append(_row(row["lang"], task, body, label, name, "composed_documents"))
    return made


def _short_pair(given: Insertions, rng: random.Random, lines: list[str], name: str) -> list[Row]:
    lang = "en" if rng.random() < 0.6 else rng.choice(sorted(given.orders))
    chosen = _sentences(given, lang, rng)
    if chosen is None:
        return []
    seed = rng.random()
    made = []
    for label, sentence in enumerate(chosen):
        # The same seed for both, so that they get the same shell and the same filling.
        task, body = shells(random.Random(seed), lines, sentence)
        made.append(
            _row(lang, "" if seed < MASKED_TASK else task, body, label, name, "composed_results")
        )
    return made


def _row(lang: str, task: str, body: str, label: int, name: str, source: str) -> Row:
    return made_example(
        "document",
        [["user", task], ["tool", body]],
        label,
        pair=name,
        source=source,
        lang=lang,
        categories=("benign_document", "indirect_injection"),
    )
