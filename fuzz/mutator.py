"""Makes cases: a known input with a few random changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from fuzz.seeds import SEEDS, TOKENS

MAX_BYTES = 4096
_ODD_VALUES = (
    None, True, 0, -1, 2**70, 1e300, -0.5, "", "x", "user", "\ud800", "\0", "2", [], {}, [[]],
    [None], {"": 0}, {"role": "user"}, {"text": 5}, {"content": []}, ["user", {"text": "y"}],
)  # fmt: skip


def mutated(source: random.Random, target: str) -> bytes:
    """Return a seed of `target` with a few random changes."""
    data = bytearray(source.choice(SEEDS[target]))
    for _ in range(source.randrange(1, 8)):
        source.choice(_CHANGES)(data, source, target)
        del data[MAX_BYTES:]
    return bytes(data)


def _put_token(data: bytearray, source: random.Random, target: str) -> None:
    at = source.randrange(len(data) + 1)
    data[at:at] = source.choice(TOKENS[target]) * source.choice((1, 1, 1, 2, 5, 40))


def _replace_token(data: bytearray, source: random.Random, target: str) -> None:
    at = source.randrange(len(data) + 1)
    data[at : at + source.randrange(1, 6)] = source.choice(TOKENS[target])


def _change_byte(data: bytearray, source: random.Random, target: str) -> None:
    del target
    if data:
        data[source.randrange(len(data))] = source.randrange(256)


def _delete(data: bytearray, source: random.Random, target: str) -> None:
    del target
    at = source.randrange(len(data) + 1)
    del data[at : at + source.randrange(1, 20)]


def _repeat(data: bytearray, source: random.Random, target: str) -> None:
    del target
    at = source.randrange(len(data) + 1)
    piece = data[at : at + source.randrange(1, 30)]
    data[at:at] = piece * source.choice((1, 2, 8, 60))


def _join(data: bytearray, source: random.Random, target: str) -> None:
    other = source.choice(SEEDS[target])
    data[source.randrange(len(data) + 1) :] = other[source.randrange(len(other)) :]


def _change_node(data: bytearray, source: random.Random, target: str) -> None:
    """Put an odd value into a JSON document, so that the case still parses."""
    if target not in ("body", "conversation", "records", "state"):
        return
    start = 1 if target == "records" else 0
    lines = bytes(data[start:]).split(b"\n")
    index = source.randrange(len(lines))
    try:
        root = [json.loads(lines[index])]
    except (ValueError, RecursionError):
        return
    place, key = source.choice(list(_places(root)))
    place[key] = source.choice(_ODD_VALUES)
    lines[index] = json.dumps(root[0]).encode()
    data[start:] = b"\n".join(lines)


def _places(node: object) -> Iterator[tuple[dict[str, object] | list[object], object]]:
    waiting = [node]
    while waiting:
        at = waiting.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            yield at, key
            waiting.append(at[key])


_CHANGES: tuple[Callable[[bytearray, random.Random, str], None], ...] = (
    _put_token,
    _put_token,
    _replace_token,
    _change_byte,
    _delete,
    _repeat,
    _join,
    _change_node,
    _change_node,
    _change_node,
)
