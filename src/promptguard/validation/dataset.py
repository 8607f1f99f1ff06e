"""Labelled conversations: from files with every bad line known by its number, and from a store."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from promptguard.conversation import Message, Role, printable
from promptguard.counts import counted
from promptguard.errors import DataError, InputError
from promptguard.protocols import SessionKey, SessionQuery, SessionStore
from promptguard.records import Fault, FieldMap, Record, input_files, read_records
from promptguard.runs.report import DataFile
from promptguard.state import SessionState, TranscriptEntry
from promptguard.verdict import Action, Verdict

ATTACKS = frozenset({"attack", "extractive", "manipulative"})
BENIGN = frozenset({"benign", "reciprocal"})
UNDECIDED = frozenset({"borderline"})
FEEDBACK = "feedback"
_PAGE = 100
_ATTACK_LABELS = frozenset({"attack", "true_attack"})
_BENIGN_LABELS = frozenset({"benign", "false_alarm"})
OnFault = Literal["continue", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One labelled conversation; `index` is its place in the data set, from 0.

    `attack_turn` is the first openly hostile turn, counted from 1 as turns are judged, where it is
    known.
    """

    index: int
    id: str | int
    is_attack: bool
    label: str
    messages: tuple[Message, ...]
    source: str = ""
    lang: str = ""
    category: str = ""
    pair: str = ""
    attack_turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The cases to judge, and what was not taken: bad lines, and records without a side.

    `skipped` counts borderline records, which are neither attack nor benign. `sample` says how
    the cases were drawn, where not all were taken.
    """

    cases: tuple[Case, ...]
    faults: tuple[Fault, ...] = ()
    skipped: int = 0
    files: tuple[DataFile, ...] = ()
    sample: str = ""


def load_dataset(
    given: Iterable[str | Path],
    *,
    fields: FieldMap | None = None,
    on_fault: OnFault = "continue",
    turns_from: int = 0,
    sample: int | None = None,
    per_source: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Read labelled records, all of them or a part drawn with `seed`, in their order.

    `per_source` keeps at most that many of each source and label, `sample` that many of all.
    `turns_from` is how the data numbers the first user turn in `attack_turn`. With
    `on_fault="stop"` the first bad line raises DataError.
    """
    paths = input_files(given)
    cases: list[Case] = []
    faults: list[Fault] = []
    skipped = 0
    for item in read_records(paths, fields):
        found = item if isinstance(item, Fault) else _case(item, len(cases), turns_from)
        if isinstance(found, Fault):
            if on_fault == "stop":
                raise DataError(f"{found.file}, line {found.number}: {found.reason}")
            faults.append(found)
        elif found is None:
            skipped += 1
        else:
            cases.append(found)
    drawn = cases if per_source is None else _per_source(cases, per_source, seed)
    if sample is not None and sample < len(drawn):
        kept = sorted(random.Random(seed).sample(range(len(drawn)), sample))
        drawn = [drawn[place] for place in kept]
    return Dataset(
        cases=tuple(drawn),
        faults=tuple(faults),
        skipped=skipped,
        files=tuple(_hashed(Path(path)) for path in paths if Path(path).is_file()),
        sample=_sample_note(len(drawn), len(cases), per_source, seed),
    )


def _case(record: Record, index: int, turns_from: int) -> Case | Fault | None:
    if record.label in UNDECIDED:
        return None
    try:
        return Case(
            index=index,
            id=printable(record.id) if isinstance(record.id, str) else record.id,
            is_attack=_is_attack(record.label),
            label=record.label,
            messages=record.messages,
            source=record.source or record.file,
            lang=record.lang,
            category=record.category,
            pair=record.pair,
            attack_turn=_attack_turn(record, turns_from),
        )
    except InputError as error:
        return Fault(file=record.file, number=record.number, reason=str(error), id=record.id)


def _is_attack(label: str) -> bool:
    if label not in ATTACKS | BENIGN:
        known = ", ".join(sorted(ATTACKS | BENIGN | UNDECIDED))
        raise InputError(f"label must be one of {known}.")
    return label in ATTACKS


def _attack_turn(record: Record, turns_from: int) -> int | None:
    if not record.attack_turn or record.label in BENIGN:
        return None
    roles = [m.role for m in record.messages if m.role in (Role.USER, Role.TOOL)]
    turns = roles.count(Role.USER)
    try:
        # Tables spell whole numbers as 3.0 where a column has gaps.
        named = float(record.attack_turn)
        turn = int(named) - turns_from + 1 if named.is_integer() else 0
    except ValueError:
        turn = 0
    last = max(turns, 1)
    if not 1 <= turn <= last:
        raise InputError(
            f"attack_turn must name a user turn, from {turns_from} to {last - 1 + turns_from}."
        )
    # Tool results before all words are a turn of their own, which is judged and counted too.
    return turn + int(turns > 0 and roles[0] is Role.TOOL)


def _per_source(cases: list[Case], most: int, seed: int) -> list[Case]:
    groups: dict[tuple[str, bool], list[int]] = {}
    for place, case in enumerate(cases):
        groups.setdefault((case.source, case.is_attack), []).append(place)
    kept: list[int] = []
    for group, places in groups.items():
        # A generator for each group: another source in the data changes no other draw.
        rng = random.Random(f"{seed} {group}")
        kept += places if len(places) <= most else rng.sample(places, most)
    return [cases[place] for place in sorted(kept)]


def _sample_note(drawn: int, of: int, per_source: int | None, seed: int) -> str:
    if drawn == of:
        return ""
    how = "" if per_source is None else f", at most {per_source} of each source and label"
    return f"{drawn} of {counted(of, 'case')}{how}, drawn with seed {seed}"


def _hashed(path: Path) -> DataFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return DataFile(name=printable(path.name), sha256=digest.hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Labelled sessions; `without_text` were labelled, but their text was not kept."""

    cases: tuple[Case, ...]
    without_text: int


async def labelled_sessions(store: SessionStore, *, first_index: int = 0) -> Feedback:
    """Read every session on which a person gave a verdict; the latest on each turn counts.

    A session is an attack where one of its turns is: a false alarm on another is no acquittal.
    """
    cases: list[Case] = []
    without_text = 0
    async for state in _all_sessions(store):
        verdict = await _verdict(store, state)
        messages = () if verdict is None else await _messages(store, state)
        if messages:
            cases.append(
                Case(
                    index=first_index + len(cases),
                    id=f"{state.tenant}/{state.session_id}",
                    is_attack=bool(verdict),
                    label="attack" if verdict else "benign",
                    messages=messages,
                    source=FEEDBACK,
                )
            )
        without_text += verdict is not None and not messages
    return Feedback(cases=tuple(cases), without_text=without_text)


async def _all_sessions(store: SessionStore) -> AsyncIterator[SessionState]:
    seen: set[SessionKey] = set()
    # Twice, because one that is saved meanwhile moves from a page to come to the first one, and
    # others from this page to the next.
    for _ in range(2):
        offset = 0
        while page := await store.sessions(SessionQuery(tenant=None, limit=_PAGE, offset=offset)):
            offset += len(page)
            for state in page:
                if _key(state) not in seen:
                    seen.add(_key(state))
                    yield state


async def _verdict(store: SessionStore, state: SessionState) -> bool | None:
    """Return True for an attack, False for a false alarm, None where nobody labelled it."""
    standing: dict[int | None, bool] = {}
    for label in await store.labels(_key(state)):
        spelling = label.verdict.strip().lower().replace(" ", "_")
        if spelling in _ATTACK_LABELS | _BENIGN_LABELS:
            # One on the whole session takes back what was said of its turns.
            kept = {} if label.turn is None else standing
            standing = {**kept, label.turn: spelling in _ATTACK_LABELS}
    return any(standing.values()) if standing else None


async def _messages(store: SessionStore, state: SessionState) -> tuple[Message, ...]:
    entries = await store.transcript(_key(state))
    if any(entry.content is None for entry in entries):
        return ()
    blocked = {entry.turn for entry in entries if _was_blocked(entry)}
    # The guard's own refusals are left out: they would be evidence for themselves.
    said = tuple(
        Message(role=entry.role, content=entry.content or "", timestamp=entry.timestamp)
        for entry in entries
        if entry.role is not Role.ASSISTANT or entry.turn not in blocked
    )
    # The session was judged with it, as far as it is kept.
    told = Message(role=Role.SYSTEM, content=state.system)
    return (told, *said) if said and state.system else said


def _was_blocked(entry: TranscriptEntry) -> bool:
    if not entry.verdict:
        return False
    try:
        return Verdict.from_json(entry.verdict).action is Action.BLOCK
    except DataError:
        # Of another version. Without its answer the turn still counts; a refusal must not.
        return True


def _key(state: SessionState) -> SessionKey:
    return SessionKey(session_id=state.session_id, tenant=state.tenant)
