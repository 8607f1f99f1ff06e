"""How token ids are laid out for the encoders: messages, conversations, untrusted documents.

Training and serving both cut text here, so that the models see what they were taught.
"""

from __future__ import annotations

from collections.abc import Sequence

CLS, SEP = 101, 102
WINDOW, STRIDE = 160, 120
MAX_WINDOWS = 24
CONTEXT = 192
SYSTEM_TOKENS, USER_TOKENS, ASSISTANT_TOKENS, LAST_TOKENS = 40, 48, 14, 80
TASK_TOKENS = 32
USER, ASSISTANT, SYSTEM, TOOL = range(4)
_SPEAKERS = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "tool": TOOL}

Window = tuple[list[int], list[int]]
"""Token ids, and who speaks each of them."""


def spread(count: int, limit: int) -> list[int]:
    """Return at most `limit` of the indices below `count`, evenly from the first to the last."""
    if count <= limit:
        return list(range(count))
    if limit == 1:
        return [0]
    return [round(index * (count - 1) / (limit - 1)) for index in range(limit)]


def starts_of(length: int, body: int, stride: int) -> list[int]:
    """Return where the windows of `body` tokens begin that cover `length` tokens."""
    if length <= body:
        return [0]
    starts = list(range(0, length - body + stride, stride))
    starts[-1] = length - body
    return starts


def message_windows(ids: Sequence[int], limit: int = MAX_WINDOWS) -> list[list[int]]:
    """Cut a message into overlapping windows, each framed by CLS and SEP.

    Where more than `limit` windows would be needed, `limit` are spread evenly from the first to
    the last; `is_cut` says so.
    """
    body = WINDOW - 2
    starts = starts_of(len(ids), body, STRIDE)
    chosen = [starts[index] for index in spread(len(starts), limit)]
    return [[CLS, *ids[start : start + body], SEP] for start in chosen]


def is_cut(length: int, limit: int = MAX_WINDOWS) -> bool:
    """Say whether a message of `length` tokens needs more windows than are judged."""
    return length > WINDOW - 2 + (limit - 1) * STRIDE


def shorten(ids: Sequence[int], limit: int) -> list[int]:
    """Keep the head (two thirds) and the tail of a long turn."""
    if len(ids) <= limit:
        return list(ids)
    head = limit * 2 // 3
    return [*ids[:head], *ids[len(ids) - (limit - head) :]]


def document_windows(
    task: Sequence[int], ids: Sequence[int], limit: int = MAX_WINDOWS
) -> list[Window]:
    """Cut untrusted content into windows, each behind what the user asked for, shortened."""
    asked = [CLS, *shorten(task, TASK_TOKENS), SEP]
    body = WINDOW - len(asked) - 1
    starts = starts_of(len(ids), body, body * 3 // 4)
    windows = []
    for index in spread(len(starts), limit):
        part = [*ids[starts[index] : starts[index] + body], SEP]
        windows.append(([*asked, *part], [USER] * len(asked) + [TOOL] * len(part)))
    return windows


def context_window(said: Sequence[tuple[str, Sequence[int]]], system: Sequence[int] = ()) -> Window:
    """Lay the system prompt and the last turns out in one window, newest last.

    The system prompt and the assistant's turns are shortened most. What the user said has the room
    first, from the newest turn on, and the replies to it what is left.
    """
    opening = [*shorten(system, SYSTEM_TOKENS), SEP] if system else []
    room = CONTEXT - 1 - len(opening)
    kept: dict[int, list[int]] = {}
    oldest = 0
    for index in reversed(range(len(said))):
        role, ids = said[index]
        if role == "assistant":
            continue
        is_last = index == len(said) - 1
        piece = [*shorten(ids, LAST_TOKENS if is_last else USER_TOKENS), SEP]
        if len(piece) > room:
            oldest = index + 1
            break
        room -= len(piece)
        kept[index] = piece
    for index in reversed(range(oldest, len(said))):
        role, ids = said[index]
        piece = [*shorten(ids, ASSISTANT_TOKENS), SEP]
        if role == "assistant" and len(piece) <= room:
            room -= len(piece)
            kept[index] = piece
    tokens, speakers = [CLS, *opening], [USER] + [SYSTEM] * len(opening)
    for index, piece in sorted(kept.items()):
        tokens += piece
        speakers += [_SPEAKERS[said[index][0]]] * len(piece)
    return tokens, speakers
