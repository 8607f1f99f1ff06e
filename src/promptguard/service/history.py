"""The history that a client resends, compared with the stored one, and the turns left to judge.

Pure functions. Messages are compared by hash, from the end backwards, turn by turn; within a
turn the order is free, because a turn is stored user first, whatever came first.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from promptguard.conversation import ComparableMessage, Role, content_hash
from promptguard.service.verdicts import contents_of, is_stored_block
from promptguard.state import TranscriptEntry
from promptguard.turns.input import Content, OpenTurn, Step, TurnInput
from promptguard.verdict import ContentFinding

_EMPTY = content_hash("")
# Origins of contents that are messages, or fields of messages.
_SPOKEN = re.compile(r"(tool|user|assistant)\Z|(messages|input)\[")
# Clients may split one stored user message into several, or resend less of an answer than was
# sent; these bounds say how far that is still the same message.
_MAX_JOINED = 16
_CUT_SHARE = 0.5
MAX_IMPORTED = 64
_MERGED_CHARS = 40_000


class HistoryKind(StrEnum):
    """How the history in a request relates to the stored one."""

    FIRST = "first"
    INTACT = "intact"
    NOT_RESENT = "not_resent"
    RETRIED = "retried"
    REGENERATED = "regenerated"
    DROPPED = "dropped"
    REWRITTEN = "rewritten"

    @property
    def is_rewriting(self) -> bool:
        """Whether the client changed or left out earlier messages."""
        return self in (HistoryKind.DROPPED, HistoryKind.REWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The kind of history, the new messages, and those of the history that were never stored.

    `learned` is an answer that the store lacks because its turn was judged without one.
    `stripped` are the digests of contents that were withheld from the model before.
    """

    kind: HistoryKind
    new: tuple[ComparableMessage, ...]
    unseen: tuple[ComparableMessage, ...] = ()
    learned: str | None = None
    stripped: frozenset[str] = frozenset()


def split_new(
    messages: Sequence[ComparableMessage],
) -> tuple[tuple[ComparableMessage, ...], tuple[ComparableMessage, ...]]:
    """Return history and new messages: what follows the last assistant message is new.

    An assistant message at the very end is a prefilled answer and belongs to the new messages.
    """
    end = len(messages)
    while end and messages[end - 1].role is Role.ASSISTANT:
        end -= 1
    start = end
    while start and messages[start - 1].role is not Role.ASSISTANT:
        start -= 1
    return tuple(messages[:start]), tuple(messages[start:])


def compare(
    messages: Sequence[ComparableMessage],
    stored: Sequence[TranscriptEntry],
    *,
    hides_refusals: bool = False,
    learns_replies: bool = False,
) -> Comparison:
    """Compare the messages of a request with the stored transcript.

    `hides_refusals`: blocked turns were answered with an error, so the client has no refusal to
    resend. `learns_replies`: answers reach us only when they are resent.
    """
    pairs = list(_with_findings(stored))
    withheld = (entry for entry, finding in pairs if finding is not None and finding.is_withheld)
    stripped = frozenset(entry.content_hash for entry in withheld if entry.content_hash)
    found = partial(Comparison, stripped=stripped)
    history, new = split_new(messages)
    # Fields beside the conversation, a tool's description for one, may come and go without any
    # history changing.
    spoken = [entry for entry, of in pairs if of is None or _SPOKEN.match(of.origin)]
    ordered = sorted(spoken, key=lambda entry: (entry.turn, entry.position))
    kept = [entry for entry in ordered if entry.content_hash not in ("", _EMPTY)]
    if not stored:
        return found(kind=HistoryKind.FIRST, new=new, unseen=history)
    if not kept:
        # Nothing proves that this history was judged, so it is judged once more.
        return found(kind=HistoryKind.NOT_RESENT, new=new, unseen=history)
    # Empty answers (tool calls alone) are left out of `kept` but still answer their turn.
    is_answered = _is_answered(ordered)
    match = _Match(kept)
    unseen = match.walk(history)
    # Compared whole: what is cut off the front below is part of the repeated turn.
    if not unseen and not is_answered and _asks_last(new, kept):
        return found(kind=HistoryKind.RETRIED, new=new)
    new = _without_known_front(new, kept)
    if not history:
        return found(kind=HistoryKind.NOT_RESENT, new=new)
    learned = None
    # The model answered elsewhere, so an answer that is new at the end was never ours to store.
    if learns_replies and not is_answered and unseen and unseen[-1] is history[-1]:
        learned = unseen.pop().content
    if unseen:
        kind = HistoryKind.REWRITTEN
    elif learned is not None:
        kind = HistoryKind.INTACT
    else:
        kind = _kind_of(new, match.dropped(hides_refusals=hides_refusals))
    return found(kind=kind, new=new, unseen=tuple(unseen), learned=learned)


def whole_turns(tail: Sequence[TranscriptEntry]) -> Sequence[TranscriptEntry]:
    """Return the end of a transcript without the turn that it begins in the middle of.

    What was found of that turn's contents stands with its first entry, which is not there.
    """
    if not tail or tail[0].verdict:
        return tail
    return [entry for entry in tail if entry.turn != tail[0].turn]


def _with_findings(
    stored: Sequence[TranscriptEntry],
) -> Iterator[tuple[TranscriptEntry, ContentFinding | None]]:
    """Yield each entry, a content with the finding on it."""
    findings: list[ContentFinding] = []
    for entry in sorted(stored, key=lambda entry: entry.position):
        if entry.verdict:
            # Findings stand in the order of the contents and are taken from the end.
            findings = list(reversed(contents_of(entry)))
        is_content = entry.role is Role.TOOL and findings
        yield entry, findings.pop() if is_content else None


def _kind_of(new: Sequence[ComparableMessage], dropped: Sequence[TranscriptEntry]) -> HistoryKind:
    if not dropped:
        return HistoryKind.INTACT
    asked = [entry.content_hash for entry in dropped if entry.role is not Role.ASSISTANT]
    # The last turn asked again in the same words is a wish for another answer, no rewriting.
    is_same = asked == [item.digest for item in new] and len({e.turn for e in dropped}) == 1
    return HistoryKind.REGENERATED if is_same else HistoryKind.DROPPED


def _is_answered(stored: Sequence[TranscriptEntry]) -> bool:
    """Say whether the last stored turn has an answer, if only an empty one."""
    last = stored[-1].turn
    return any(entry.role is Role.ASSISTANT for entry in stored if entry.turn == last)


def _asks_last(new: Sequence[ComparableMessage], stored: Sequence[TranscriptEntry]) -> bool:
    """Say whether the new messages, joined as they would be stored, repeat the last stored turn."""
    last = [entry.content_hash for entry in stored if entry.turn == stored[-1].turn]
    users = [item.content for item in new if item.role is Role.USER]
    asked = [item.digest for item in new if item.role is not Role.USER]
    asked += [content_hash("\n".join(users))] if users else []
    return sorted(last) == sorted(asked)


def _without_known_front(
    new: tuple[ComparableMessage, ...], stored: Sequence[TranscriptEntry]
) -> tuple[ComparableMessage, ...]:
    """Return `new` without the last stored turns, which the client resends as unanswered."""
    asked = [entry.content_hash for entry in stored if entry.role is not Role.ASSISTANT]
    digests = [item.digest for item in new]
    # At least one message stays new, or there would be no turn to judge.
    for count in range(min(len(new) - 1, len(asked)), 0, -1):
        if digests[:count] == asked[-count:]:
            return new[count:]
    return new


class _Match:
    """Walks a history backwards through the stored turns and marks the entries it matches."""

    def __init__(self, stored: Sequence[TranscriptEntry]) -> None:
        self._stored = stored
        self._used: set[int] = set()
        self._turn = stored[-1].turn
        self._latest: int | None = None
        self._answers: list[int] = []
        self._places: dict[tuple[bool, str], list[int]] = {}
        for at, entry in enumerate(stored):
            # Found by hash and not by search: a long history costs one look-up per message.
            self._places.setdefault((entry.role is Role.USER, entry.content_hash), []).append(at)
            self._answers += [at] if entry.role is Role.ASSISTANT else []

    def walk(self, history: Sequence[ComparableMessage]) -> list[ComparableMessage]:
        """Return the messages that were never stored, in their order."""
        unseen: list[ComparableMessage] = []
        at = len(history) - 1
        while at >= 0:
            taken = self._take(history, at)
            if not taken:
                unseen.append(history[at])
            at -= max(1, taken)
        return unseen[::-1]

    def dropped(self, *, hides_refusals: bool) -> list[TranscriptEntry]:
        """Return the latest stored entries that the client left out of its history."""
        if self._latest is None:
            return []
        # A turn without an answer may be missing: clients do not resend what failed.
        answered = {e.turn for e in self._stored if e.role is Role.ASSISTANT}
        blocked = {entry.turn for entry in self._stored if is_stored_block(entry)}
        hidden = blocked if hides_refusals else set()
        return [
            entry
            for at, entry in enumerate(self._stored)
            if entry.turn >= self._latest
            and at not in self._used
            and entry.turn in answered
            and entry.turn not in hidden
        ]

    def _take(self, history: Sequence[ComparableMessage], at: int) -> int:
        """Match one message, or several joined, to a stored entry; return how many were matched."""
        role = history[at].role
        texts: list[str] = []
        for count in range(1, _MAX_JOINED + 1):
            if at - count + 1 < 0 or history[at - count + 1].role is not role:
                return 0
            texts.insert(0, history[at - count + 1].content)
            digest = history[at].digest if count == 1 else content_hash("\n".join(texts))
            if self._mark(role is Role.USER, digest):
                return count
            if count == 1 and role is Role.ASSISTANT and self._mark_cut(texts[0]):
                return 1
        return 0

    def _mark(self, is_user: bool, digest: str) -> bool:
        place = self._latest_of(self._places.get((is_user, digest), ()))
        return place is not None and self._use(place)

    def _mark_cut(self, text: str) -> bool:
        """Match a part of a stored answer: a client that broke off a stream has no more of it."""
        # Only the latest answer left can have been cut off.
        place = self._latest_of(self._answers)
        if place is None or not text:
            return False
        whole = self._stored[place].content or ""
        is_cut = whole.startswith(text) and len(text) >= _CUT_SHARE * len(whole)
        return is_cut and self._use(place)

    def _latest_of(self, places: Sequence[int]) -> int | None:
        """Return the latest of the places that was not used yet.

        It is never later than the turn matched last: the walk goes backwards, so a history in
        another order does not match.
        """
        end = bisect_right(places, self._turn, key=lambda place: self._stored[place].turn)
        latest_first = (places[at] for at in range(end - 1, -1, -1))
        return next((place for place in latest_first if place not in self._used), None)

    def _use(self, place: int) -> bool:
        self._used.add(place)
        self._turn = self._stored[place].turn
        self._latest = self._turn if self._latest is None else self._latest
        return True


def steps_in(comparison: Comparison, system: str, max_chars: int) -> list[Step]:
    """Return the turns to judge, in order; the last is the request's own.

    Of a long past several are judged as one, of at most `max_chars` characters.
    """
    users = [item.content for item in comparison.new if item.role is Role.USER]
    others = [content_of(item) for item in comparison.new if item.role is not Role.USER]
    if comparison.kind is HistoryKind.FIRST:
        earlier = _imported(comparison.unseen)
    else:
        earlier = [_step_of(item) for item in comparison.unseen if item.role is not Role.ASSISTANT]
        # In a known session these words were never said; they are judged as content, not as
        # replies.
        others += [content_of(item) for item in comparison.unseen if item.role is Role.ASSISTANT]
    size = min(_MERGED_CHARS, max_chars)
    earlier = [*_merged(earlier[:-MAX_IMPORTED], size), *earlier[-MAX_IMPORTED:]]
    last = Step(turn=TurnInput(text="\n".join(users), contents=tuple(others)))
    return [replace(s, turn=replace(s.turn, system=system)) for s in (*earlier, last)]


def _imported(messages: Sequence[ComparableMessage]) -> list[Step]:
    """Return a history as turns; contents keep their origins."""
    # What stands before the first user message, an assistant's included, nobody asked for.
    opening, turns = OpenTurn(), list[OpenTurn]()
    for item in messages:
        if item.role is Role.USER:
            turns.append(OpenTurn(text=item.content))
        elif item.role is Role.ASSISTANT and turns:
            turns[-1].replies.append(item.content)
        else:
            (turns[-1] if turns else opening).contents.append(content_of(item))
    return [turn.step() for turn in (opening, *turns) if turn is not opening or opening.contents]


def _step_of(item: ComparableMessage) -> Step:
    if item.role is Role.USER:
        return Step(turn=TurnInput(text=item.content))
    return Step(turn=TurnInput(text="", contents=(content_of(item),)))


def _merged(steps: Sequence[Step], most: int) -> Iterator[Step]:
    """Yield a long past in fewer, larger turns: one request must not cost thousands of them."""
    texts: list[str] = []
    contents: list[Content] = []
    size = 0
    for step in steps:
        # With the line end that parts it from the next.
        length = len(step.turn.text) + sum(len(c.text) for c in step.turn.contents) + 1
        if size and size + length > most:
            yield Step(turn=TurnInput(text="\n".join(texts), contents=tuple(contents)))
            texts, contents, size = [], [], 0
        texts += [step.turn.text] if step.turn.text else []
        contents += step.turn.contents
        size += length
    if texts or contents:
        yield Step(turn=TurnInput(text="\n".join(texts), contents=tuple(contents)))


def content_of(item: ComparableMessage) -> Content:
    """Return a message as untrusted content; an assistant's is words put into its mouth."""
    return Content(text=item.content, origin=item.origin or item.role.value)
