"""A message list as exchanges, which of them a session has not seen, and what a model sees."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from promptguard.conversation import Message, Role, content_hash, role_of
from promptguard.errors import InputError
from promptguard.risk.ledger import STRIPPED
from promptguard.state import TranscriptEntry
from promptguard.turns.input import Content, TurnInput
from promptguard.turns.result import withheld_digests
from promptguard.verdict import Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What came between two messages of the assistant, and the assistant's answer to it.

    User messages without an answer in between are one turn: they reach the model together.
    `places` are the indices of `contents` in the message list.
    """

    text: str = ""
    contents: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    reply: str | None = None

    @property
    def digest(self) -> str:
        """What a stored turn with the same words and contents has as its digest."""
        return _digest((content_hash(self.text), *map(content_hash, self.contents)))

    def turn(self, system: str) -> TurnInput:
        """Return the exchange as it is judged."""
        contents = tuple(Content(text=text) for text in self.contents)
        return TurnInput(text=self.text, contents=contents, system=system)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A recorded turn: its digest, whether it has an answer, its verdict, what it withheld."""

    digest: str
    is_answered: bool
    verdict: Verdict | None
    withheld: frozenset[str]


@dataclass(slots=True)
class _Collected:
    """An exchange as its messages come: put together once, or thousands take quadratic time."""

    said: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)

    def add(self, message: Message, index: int) -> None:
        if message.role is Role.TOOL:
            self.contents.append(message.content)
            self.places.append(index)
        elif self.said or message.content:
            self.said.append(message.content)

    def exchange(self) -> Exchange:
        return Exchange(
            text="\n".join(self.said),
            contents=tuple(self.contents),
            places=tuple(self.places),
            reply="\n".join(filter(None, self.replies)) if self.replies else None,
        )


def exchanges_of(messages: Sequence[Message]) -> tuple[Exchange, ...]:
    """Cut a conversation into exchanges; without user or tool messages there is an empty one."""
    made: list[_Collected] = []
    is_open = False
    for index, message in enumerate(messages):
        if message.role is Role.SYSTEM:
            continue
        if message.role is Role.ASSISTANT:
            if made:
                # A greeting of the assistant before any question answers nothing and is left out.
                made[-1].replies.append(message.content)
            is_open = False
            continue
        # User messages without an answer in between reach the model together and are one turn.
        if not is_open:
            made.append(_Collected())
            is_open = True
        made[-1].add(message, index)
    return tuple(each.exchange() for each in made) or (Exchange(),)


def system_of(messages: Iterable[Message]) -> str:
    """Return what the application told the model."""
    return "\n".join(m.content for m in messages if m.role is Role.SYSTEM and m.content)


def prefix_hashes(exchanges: Sequence[Exchange], system: str) -> list[bytes]:
    """Return a name for each beginning of a conversation: a chain of hashes over its messages."""
    names: list[bytes] = []
    chain = system
    for exchange in exchanges:
        # Half a surrogate pair in the system prompt has no UTF-8 form.
        link = f"{chain}\0{exchange.digest}".encode("utf-8", "replace")
        names.append(hashlib.blake2b(link, digest_size=16).digest())
        # The answer counts from the next name on: a beginning is looked up before it has one.
        chain = f"{names[-1].hex()}\0{content_hash(exchange.reply or '')}"
    return names


def recorded_turns(entries: Sequence[TranscriptEntry]) -> tuple[RecordedTurn, ...]:
    """Return the recorded turns of a session in order."""
    turns: dict[int, list[TranscriptEntry]] = {}
    for entry in entries:
        turns.setdefault(entry.turn, []).append(entry)
    return tuple(_stored(turn) for _, turn in sorted(turns.items()))


def seen_by_model(
    stored: Sequence[TranscriptEntry], turn: TurnInput, verdict: Verdict, *, is_enforced: bool
) -> list[Message]:
    """Return the messages that a model gets for a turn: what is kept of earlier ones, and it.

    Contents that were withheld, in this turn or before, are replaced by a note.
    """
    earlier = [entry for entry in stored if entry.turn < verdict.turn]
    # An answer without its question misleads, so a turn without all of its text is left out.
    gone = {entry.turn for entry in earlier if entry.content is None}
    said = [
        *(Message(role=e.role, content=e.content or "") for e in earlier if e.turn not in gone),
        # This turn's words are at hand; the store may keep none of them.
        Message(role=Role.USER, content=turn.text),
        *(Message(role=Role.TOOL, content=content.text) for content in turn.contents),
    ]
    if not is_enforced:
        return said
    withheld = withheld_digests([content.text for content in turn.contents], verdict).union(
        *(recorded.withheld for recorded in recorded_turns(earlier))
    )
    return [
        _noted(each) if each.role is Role.TOOL and content_hash(each.content) in withheld else each
        for each in said
    ]


def unseen(given: Sequence[Exchange], stored: Sequence[RecordedTurn]) -> tuple[Exchange, ...]:
    """Return the exchanges that were not judged before.

    A list that continues the recorded turns, whole or from any turn on, is new behind them. In
    one that does not, everything unknown is new, and always its last exchange.
    """
    known = [turn.digest for turn in stored]
    digests = [exchange.digest for exchange in given]
    if "" in known:  # nothing was kept that a message could be recognised by
        return tuple(given[-1:])
    # The longest overlap first: a message said several times also fits a shorter one.
    for count in range(min(len(digests), len(known)), 0, -1):
        # The last one alone tells most beginnings from the end of the session.
        if digests[count - 1] == known[-1] and digests[:count] == known[-count:]:
            new = tuple(given[count:])
            # The same words after an answer are said anew, unless the answer is in the list.
            is_alone = len(given) == 1 and given[0].reply is None
            return tuple(given) if is_alone and stored[-1].is_answered else new
    judged = frozenset(known)
    return (*(e for e in given[:-1] if e.digest not in judged), *given[-1:])


def without_withheld(messages: Sequence[T], withheld: Sequence[int]) -> list[T]:
    """Return a message list with a note in place of what the model must not see.

    Takes the same forms of messages as `judge`, and leaves the given ones as they are.
    """
    hidden = frozenset(withheld)
    return [_noted(item) if index in hidden else item for index, item in enumerate(messages)]


def with_notice(messages: Sequence[T], notice: str) -> list[T | dict[str, str]]:
    """Return OpenAI's messages with a notice to the model, after the developer's own words.

    It has the role that the application uses for them: some models accept only `developer`,
    others only `system`.
    """
    if not notice:
        return list(messages)
    at = next((i for i, m in enumerate(messages) if not _is_developers(m)), len(messages))
    last = messages[at - 1] if at else None
    role = str(last["role"]) if isinstance(last, Mapping) else Role.SYSTEM.value
    return [*messages[:at], {"role": role, "content": notice}, *messages[at:]]


def _is_developers(message: object) -> bool:
    try:
        return isinstance(message, Mapping) and role_of(message.get("role")) is Role.SYSTEM
    except InputError:
        return False


def _noted(message: Any) -> Any:
    if isinstance(message, dict):
        # A tool's result in the Responses API has its text in `output`.
        return {**message, "output" if "output" in message else "content": STRIPPED}
    if isinstance(message, Message):
        return replace(message, content=STRIPPED)
    # Messages of other libraries, such as LangChain's, are pydantic models.
    return message.model_copy(update={"content": STRIPPED})


def _stored(entries: Sequence[TranscriptEntry]) -> RecordedTurn:
    verdict = next((Verdict.from_json(e.verdict) for e in entries if e.verdict), None)
    contents = [e.content_hash for e in entries if e.role is Role.TOOL]
    hashes = [*(e.content_hash for e in entries if e.role is Role.USER), *contents]
    findings = verdict.content if verdict is not None else ()
    return RecordedTurn(
        # With `store_text: off` no hashes are kept, and no turn can be recognised.
        digest=_digest(hashes) if all(hashes) else "",
        is_answered=any(e.role is Role.ASSISTANT for e in entries),
        verdict=verdict,
        withheld=frozenset(
            contents[f.index] for f in findings if f.is_withheld and f.index < len(contents)
        ),
    )


def _digest(hashes: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(hashes).encode(), digest_size=16).hexdigest()
