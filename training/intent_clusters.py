"""Find the middle of what each kind of attack and of ordinary use looks like to the model.

    python -m training.intent_clusters [--leave-out FILE] FOLDER [FOLDER ...]

Reads the single messages of every `*.jsonl` in the folders, sorts them into clusters by category
and topic, embeds at most 400 of each with the shipped model and writes the mean directions to
`data/intent_clusters.json`. Records whose id is in FILE stay out, so that the clusters can be
measured on them. Run it again whenever the model changes.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from promptguard.model.readers import Readers, shared_readers
from promptguard.vector import Vector, pack_vector
from training.records import read

OUT = Path(__file__).parent.parent / "src/promptguard/data/intent_clusters.json"
MAX_RECORDS, MIN_RECORDS = 400, 40

# A topic that contains one of the words belongs there; the first that fits is taken.
SUBJECTS = {
    "hacking and spying": "hack malware phish spyware ddos ransom cyber account stalk dox privacy"
    " surveil voyeur spy",
    "fraud and theft": "fraud scam launder forge counterfeit tax insider identity gambling corrupt"
    " bribe theft burgl shoplift break_in smuggl evading vandal cheat academic exam plagiar",
    "hate and deceit": "hate harass discrim defam bully blackmail extort opinions_groups disinf"
    " misinf election propaganda fake_ vote",
    "bodily harm": "self_harm selfharm eating_disorder distress drug poison chemical medic doping"
    " roofie hazmat weapon explosive terror extremis nuclear bio firearm arson gun sabotage"
    " violence murder abuse traffick child animal kidnap",
}
ASSISTANTS = {
    "assistants": "system_prompt hidden override persona roleplay act_as fake_system config"
    " jailbreak prompt injection credential secret other_users training_data encoding persuasion"
    " fiction",
}
EVERYDAY = {
    "programming": "programming code coding python sql devops linux regex it_ software"
    " data_science",
    "study": "study school history math science language physics chemistry biology exam essay"
    " geography literature philosoph knowledge trivia education",
    "work": "office work mail hr business marketing sales meeting admin report spreadsheet law"
    " legal finance money tax contract insurance immigration instruction format prompt"
    " classification few_shot assistant task template",
    "writing": "writing creative poem story lyrics novel screenplay joke slogan naming",
    "daily life": "health fitness psycholog grief feelings cooking home pets garden parenting diy"
    " shopping food family cars housing farming travel sport music game hobby movie film art daily"
    " everyday chat relationship life small",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the records of one category are named and divided."""

    name: str
    is_attack: bool
    parts: Mapping[str, str] = field(default_factory=dict)


FAMILIES = {
    "harmful_request": Family(name="harm", is_attack=True, parts=SUBJECTS),
    "jailbreak": Family(name="jailbreak", is_attack=True),
    "injection": Family(name="injection", is_attack=True),
    "indirect_injection": Family(name="injection in a document", is_attack=True),
    "extraction": Family(name="extraction", is_attack=True),
    "benign_hard_negative": Family(name="talk about", is_attack=False, parts=SUBJECTS | ASSISTANTS),
    "benign_general": Family(name="ordinary", is_attack=False, parts=EVERYDAY),
    "benign_document": Family(name="ordinary document", is_attack=False),
}


def records(folders: list[Path], left_out: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield every single message that is not left out."""
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl")):
        for record in read(path):
            if record.get("kind") == "single" and record["id"] not in left_out:
                yield record


def cluster_of(record: Mapping[str, Any]) -> str | None:
    """Return the name of a record's cluster; None where its topic is in no list."""
    family = FAMILIES.get(record["category"])
    if family is None:
        return None
    if not family.parts:
        return family.name
    topic = record.get("topic") or ""
    for part, words in family.parts.items():
        if any(word in topic for word in words.split()):
            return f"{family.name}: {part}"
    return None


def said(record: Mapping[str, Any]) -> str:
    """Return what is judged: the document where there is one, else the message."""
    text: str = record["messages"][-1]["content"]
    return text


def direction(texts: list[str], encoder: Readers) -> Vector:
    """Return the mean of the texts' unit vectors at length one."""
    mean = np.mean(encoder.embed(texts), axis=0)
    unit: Vector = (mean / np.linalg.norm(mean)).astype(np.float32)
    return unit


def ids(path: Path) -> frozenset[str]:
    """Return the ids of the records of a gzipped file."""
    return frozenset(record["id"] for record in read(path))


def gathered(found: Iterator[dict[str, Any]]) -> dict[tuple[str, bool], list[str]]:
    """Return up to 400 texts of each cluster that has enough, drawn by the hash of their id."""
    members: dict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)
    for record in found:
        if name := cluster_of(record):
            key = (name, FAMILIES[record["category"]].is_attack)
            # Sorted by hash: the draw stays the same when records are added elsewhere.
            members[key].append((zlib.crc32(record["id"].encode()), said(record)))
    return {
        key: [text for _, text in sorted(texts)[:MAX_RECORDS]]
        for key, texts in sorted(members.items())
        if len(texts) >= MIN_RECORDS
    }


def main() -> None:
    """Write the clusters and print how many records each was made of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--leave-out", type=Path)
    options = parser.parse_args()
    left_out = ids(options.leave_out) if options.leave_out else frozenset()
    encoder = shared_readers()
    clusters = [
        {
            "name": name,
            "is_attack": is_attack,
            "count": len(texts),
            "vector": pack_vector(direction(texts, encoder)),
        }
        for (name, is_attack), texts in gathered(records(options.folders, left_out)).items()
    ]
    body = {
        "version": 1,
        "provenance": "training/intent_clusters.py over the project's own single messages",
        "model": encoder.version,
        "clusters": clusters,
    }
    OUT.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    for cluster in clusters:
        print(f"{cluster['count']:4}  {cluster['name']}")


if __name__ == "__main__":
    main()
