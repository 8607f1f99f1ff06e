"""One prompt as the caller gave it: checked, and cut into named layers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from promptguard.conversation import Message, Role, without_lone_surrogates
from promptguard.core.layers import LayerPriority
from promptguard.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptInput:
    """What is to be judged.

    `prompt` is another name for `user`: give one of them. `history` are the messages that
    really came before; `turn` is how many user turns that makes, where it is known better.
    `session` is whose allowance the cascade spends.
    """

    prompt: str | None = None
    system: str | None = None
    application: str | None = None
    user: str | Sequence[str] | None = None
    history: tuple[Message, ...] = ()
    turn: int | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerText:
    """One layer to be judged; `context` is JSON of the messages above and before it."""

    priority: LayerPriority
    name: str
    content: str
    context: str = ""


def layer_texts(given: PromptInput, *, max_chars: int) -> tuple[LayerText, ...]:
    """Return the layers of a prompt, the highest priority first.

    Raises InputError where there is nothing to judge, too much, or no telling what.
    """
    trusted = [
        (priority, _text(text, priority.name.lower()))
        for priority, text in (
            (LayerPriority.SYSTEM, given.system),
            (LayerPriority.APPLICATION, given.application),
        )
        if text is not None and text != ""
    ]
    parts = trusted + [(LayerPriority.USER, text) for text in _user_texts(given)]
    if sum(len(text) for _, text in parts) > max_chars:
        raise InputError(f"The prompt is longer than {max_chars} characters; raise max_chars.")
    context = _context(tuple(text for _, text in trusted), given.history)
    return tuple(
        LayerText(
            priority=priority,
            name=name,
            content=text,
            context="" if priority.is_trusted else context,
        )
        for (priority, text), name in zip(parts, _names(parts), strict=True)
    )


def turns_before(given: PromptInput) -> int:
    """Return how many user turns came before this prompt."""
    if given.turn is None:
        return sum(message.role is Role.USER for message in given.history)
    # To Python a bool is an int.
    if isinstance(given.turn, bool) or not isinstance(given.turn, int) or given.turn < 0:
        raise InputError("turn must be a whole number, 0 for the first.")
    return given.turn


def _user_texts(given: PromptInput) -> tuple[str, ...]:
    if given.prompt is not None and given.user is not None:
        raise InputError("Give prompt or user, not both: they name the same layer.")
    chosen, where = (given.user, "user") if given.prompt is None else (given.prompt, "prompt")
    if chosen is None:
        raise InputError("There is nothing to judge; give prompt or user.")
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        chosen = (chosen,)
    texts = tuple(_text(text, where) for text in chosen)
    if not texts or not all(text.strip() for text in texts):
        raise InputError(f"{where} is empty; give the text to judge.")
    return texts


def _text(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"{where} must be a string.")
    return without_lone_surrogates(text)


def _names(parts: Sequence[tuple[LayerPriority, str]]) -> list[str]:
    seen: Counter[LayerPriority] = Counter()
    names = []
    for priority, _ in parts:
        seen[priority] += 1
        names.append(priority.name + (f"[{seen[priority]}]" if seen[priority] > 1 else ""))
    return names


def _context(trusted: tuple[str, ...], history: tuple[Message, ...]) -> str:
    # JSON, because a line of plain text could pretend to be the next speaker's.
    messages = [{"role": Role.SYSTEM.value, "content": text} for text in trusted]
    messages += [
        {"role": item.role.value, "content": without_lone_surrogates(item.content)}
        for item in history
    ]
    return json.dumps(messages, ensure_ascii=False) if messages else ""
