"""Which windows of an example are read when it is scored, and what becomes of what is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from promptguard.model.network import (
    USER,
    Window,
    context_window,
    document_windows,
    message_windows,
)
from training.weighing import Row

MESSAGE, TURN, DOCUMENT, GLOSSED_MESSAGE, GLOSSED_TURN = range(5)
# Below any logit, so that rows without such a window rank last and take any maximum.
UNREAD = -20.0
NAMES = ("message", "context", "document", "gloss_message", "gloss_context")
Job = tuple[int, int, Window]
Logits = dict[str, np.ndarray]


def jobs_of(rows: list[Row]) -> list[Job]:
    """Return all windows that are to be read: of which row, as what."""
    jobs: list[Job] = []
    for index, row in enumerate(rows):
        if row["task"] == "document":
            (_, task), (_, ids) = row["ids"]
            jobs += [(index, DOCUMENT, w) for w in document_windows(task, ids)]
            continue
        jobs += [(index, *job) for job in told(row["ids"], row["system_ids"], MESSAGE, TURN)]
        if "gloss_ids" in row:
            glossed = told(row["gloss_ids"], row["system_ids"], GLOSSED_MESSAGE, GLOSSED_TURN)
            jobs += [(index, *job) for job in glossed]
    # Windows of like length share a batch, so that little is padded.
    return sorted(jobs, key=lambda job: len(job[2][0]))


def told(
    said: list[tuple[str, list[int]]], system: list[int], message: int, turn: int
) -> list[tuple[int, Window]]:
    """Return the windows of a talk's user turns one by one, and of the talk."""
    users = [ids for role, ids in said if role == "user"][-24:]
    jobs = [(message, (w, [USER] * len(w))) for ids in users for w in message_windows(ids)]
    talk = [(role, ids) for role, ids in said if role != "tool"]
    return [*jobs, (turn, context_window(talk, system))]


def nothing_read(rows: int) -> Logits:
    """Return the logits of rows of which no window was read yet."""
    found = {"document": np.full(rows, UNREAD, dtype=np.float32)}
    for name, width in (("message", 4), ("context", 2)):
        found[name] = np.full((rows, width), UNREAD, dtype=np.float32)
        found[f"gloss_{name}"] = found[name].copy()
    return found


def take(found: Logits, job: Job, told: Mapping[str, np.ndarray | float]) -> None:
    """Put down what a reader told of one window; of several windows the highest logits count."""
    index, task, _ = job
    name = NAMES[task]
    now = np.reshape(told[name.removeprefix("gloss_")], found[name].shape[1:])
    found[name][index] = np.maximum(found[name][index], now)


def without_gloss(found: Logits, rows: list[Row]) -> Logits:
    """Repeat message and context where a row has no gloss."""
    for index, row in enumerate(rows):
        if "gloss_ids" not in row:
            for name in ("message", "context"):
                found[f"gloss_{name}"][index] = found[name][index]
    return found


def labels_of(rows: list[Row]) -> Logits:
    """Return what calibration needs to know of each example."""
    names = ("id", "task", "source", "lang", "attack", "session", "kinds")
    return {name: np.array([row[name] for row in rows]) for name in names}
