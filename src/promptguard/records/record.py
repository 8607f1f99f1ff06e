"""One stored conversation, or what was wrong where one was expected."""

from __future__ import annotations

from dataclasses import dataclass

from promptguard.conversation import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A conversation and what its file says about it; what it does not say is empty.

    `number` is the line (or row) in `file`, counted from 1. `label` and `attack_turn` are as
    the file spells them: who needs them checks them.
    """

    id: str | int
    messages: tuple[Message, ...]
    file: str
    number: int
    source: str = ""
    license: str = ""
    lang: str = ""
    label: str = ""
    category: str = ""
    pair: str = ""
    attack_turn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A line that holds no conversation, and why; `id` where the line at least had one."""

    file: str
    number: int
    reason: str
    id: str | int | None = None
