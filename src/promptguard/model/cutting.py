"""How token ids are laid out for the encoder: windows over a message, one over a conversation.

Training and serving both cut text here, so that the model sees what it was taught.
"""

from __future__ import annotations

from collections.abc import Sequence

CLS, SEP = 101, 102
WINDOW, STRIDE = 160, 120
MAX_WINDOWS = 24
CONTEXT = 192
USER_TOKENS, ASSISTANT_TOKENS, LAST_TOKENS = 48, 14, 80


def message_windows(ids: Sequence[int], limit: int = MAX_WINDOWS) -> list[list[int]]:
    """Cut a message into overlapping windows, each framed by CLS and SEP.

    Where more than `limit` windows would be needed, `limit` are spread evenly from the first to
    the last; `is_cut` says so.
    """
    body = WINDOW - 2
    if len(ids) <= body:
        return [[CLS, *ids, SEP]]
    starts = list(range(0, len(ids) - body + STRIDE, STRIDE))
    starts[-1] = len(ids) - body
    if len(starts) > limit:
        last = len(starts) - 1
        starts = [starts[round(index * last / (limit - 1))] for index in range(limit)]
    return [[CLS, *ids[start : start + body], SEP] for start in starts]


def is_cut(length: int, limit: int = MAX_WINDOWS) -> bool:
    """Say whether a message of `length` tokens needs more windows than are judged."""
    return length > WINDOW - 2 + (limit - 1) * STRIDE


def shorten(ids: Sequence[int], limit: int) -> list[int]:
    """Keep the head (two thirds) and the tail of a long turn."""
    if len(ids) <= limit:
        return list(ids)
    head = limit * 2 // 3
    return [*ids[:head], *ids[len(ids) - (limit - head) :]]


def context_window(said: Sequence[tuple[str, Sequence[int]]]) -> tuple[list[int], list[int]]:
    """Lay the last turns out in one window, newest last; return token ids and speakers.

    Speaker 1 is the assistant, whose turns are shortened most; turns that do not fit any more
    are left out from the oldest on.
    """
    pieces: list[tuple[list[int], int]] = []
    room = CONTEXT - 1
    for index in range(len(said) - 1, -1, -1):
        role, ids = said[index]
        is_assistant = role == "assistant"
        limit = ASSISTANT_TOKENS if is_assistant else USER_TOKENS
        if index == len(said) - 1 and not is_assistant:
            limit = LAST_TOKENS
        piece = [*shorten(ids, limit), SEP]
        if len(piece) > room:
            break
        room -= len(piece)
        pieces.append((piece, int(is_assistant)))
    tokens, speakers = [CLS], [0]
    for piece, speaker in reversed(pieces):
        tokens += piece
        speakers += [speaker] * len(piece)
    return tokens, speakers
