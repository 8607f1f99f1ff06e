"""The judgement of an answer, whole or as it grows: what it did, and whether it may be shown.

An answer is bad where the Frozen Instinct Layer finds a hard violation in it, where it gives the
system prompt away, and, in a conversation that is SUSPECT or worse, where it becomes operational
(steps, code or exact amounts) or reaches the layer's blocking score. Sentences that refuse are
left out of that, what follows them is not. Answers are read to their end in bounded memory.

A prompt is given away by a quotation, a run of consecutive words whatever stands between them, or
by a secret: a token that looks like a key, or like a code in a sentence that speaks of secrecy.
Both are looked for in the text, in what is encoded in it, and in the text read backwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from promptguard.conversation import without_lone_surrogates
from promptguard.fil.engine import FrozenInstinct
from promptguard.signals.wording import classify_reply
from promptguard.state import ReplyKind, ReplyRecord, excerpt_of
from promptguard.text.read import read_text
from promptguard.turns.labels import reply_tags
from promptguard.verdict import Action, Mode

QUOTED_WORDS = 12
_WORD = re.compile(r"\w+")
# A full stop inside a word, as in an address or a version, ends no sentence.
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?=\S)[^.!?\n]*)*")
_SECRECY = re.compile(
    r"\b(secret|passwords?|passphrase|passcode|code|pin|token|credentials?|api.?key|key|"
    r"confidential|internal|private|reveal|disclose|share)\b",
    re.IGNORECASE,
)
# Letters, a dash, digits: ABC-1234. Or letters and digits mixed: hunter2, x9Kd01.
_CODE = re.compile(r"\b(?:[A-Za-z]{2,}[-_]?\d{3,}|(?=\w*\d)(?=\w*[A-Za-z])[\w-]{6,})\b")
# What is a key wherever it stands: known prefixes, or long and mixed.
_KEY = re.compile(r"\b(?:sk|pk|rk|ghp|gho|xox[abp]|AKIA|AIza|glpat|hf)[-_]?[A-Za-z0-9_-]{12,}\b")
# Looked at for its mixture once found: looking ahead from every word of it takes quadratic time.
_LONG = re.compile(r"\b[\w-]{20,}\b")
_MIXTURE = tuple(map(re.compile, (r"\d", "[a-z]", "[A-Z]")))
# Names of standards have the form of codes and are nobody's secret.
_STANDARDS = re.compile(r"(iso|rfc|utf|sha|ieee|http|iec|din|cve|ascii|mp)[-_]?\d", re.IGNORECASE)
WATCH_FROM = Mode.SUSPECT
# Instructions fit in a few sentences; a window of this size, moved by less than half of
# itself, sees every one of them whole and keeps long answers cheap.
WINDOW_CHARS = 2000
_STEP_CHARS = 800
# Steps and amounts are counted over this much of an answer at a time.
_DETAIL_CHARS = 8000
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """What a reply must not repeat: runs of words, and secrets, folded."""

    runs: frozenset[int]
    secrets: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.runs or self.secrets)


def protected_in(system: str, *, spoken: str = "") -> Protected:
    """Return what is to be kept of the application's prompt.

    What the user said, `spoken`, is no secret from them.
    """
    whole = _protected(system)
    if not whole or not spoken:
        return whole
    known = spoken.casefold()
    return Protected(
        runs=whole.runs.difference(_runs(spoken)),
        secrets=frozenset(token for token in whole.secrets if token not in known),
    )


def leak_in(text: str, protected: Protected) -> str:
    """Return in words what `text` gives away, empty where it gives nothing away."""
    if not protected:
        return ""
    views = read_text(text)
    # A model that was told to hide what it gives away writes it backwards or encoded.
    for reading in (text, text[::-1], *views.texts):
        folded = reading.casefold()
        if any(secret in folded for secret in protected.secrets):
            return "a secret of the system prompt"
        if protected.runs and not protected.runs.isdisjoint(_runs(reading)):
            return f"{QUOTED_WORDS} words of the system prompt"
    return ""


# An application sends the same prompt with every request.
@lru_cache(maxsize=256)
def _protected(system: str) -> Protected:
    return Protected(
        runs=frozenset(_runs(system)),
        secrets=frozenset(token.casefold() for token in secrets_in(system)),
    )


def secrets_in(system: str) -> Iterator[str]:
    """Yield what looks like a key, or like a code in a sentence that speaks of secrecy."""
    yield from _KEY.findall(system)
    yield from (run for run in _LONG.findall(system) if all(kind.search(run) for kind in _MIXTURE))
    for sentence in _SENTENCE.findall(system):
        if _SECRECY.search(sentence):
            yield from (code for code in _CODE.findall(sentence) if not _STANDARDS.match(code))


def _runs(text: str) -> Iterator[int]:
    """Yield a hash of every run of QUOTED_WORDS words."""
    words = [word.casefold() for word in _WORD.findall(text)]
    for at in range(len(words) - QUOTED_WORDS + 1):
        # A hash takes the room of a number instead of twelve words; it holds in this process only.
        yield hash(tuple(words[at : at + QUOTED_WORDS]))


_NOTHING = Protected(runs=frozenset(), secrets=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyVerdict:
    """What an answer did, and what is done about it; `reason` is empty where it may pass.

    `leak` says what it gives away of the system prompt, `tags` what others call it.
    In detect mode `is_enforced` is False.
    """

    kind: ReplyKind
    action: Action = Action.ALLOW
    reason: str = ""
    leak: str = ""
    tags: tuple[str, ...] = ()
    is_enforced: bool = True

    @property
    def is_blocked(self) -> bool:
        """Whether the answer is to be kept from the user."""
        return self.is_enforced and self.action is Action.BLOCK


def judge_reply(
    text: str, instinct: FrozenInstinct, *, mode: Mode = Mode.SAFE, protected: Protected = _NOTHING
) -> ReplyVerdict:
    """Judge a whole answer given in a conversation that stands at `mode`."""
    watch = ReplyWatch(instinct, mode, protected=protected)
    is_bad = watch.feed(text)
    return ReplyVerdict(
        kind=classify_reply(text),
        action=Action.BLOCK if is_bad else Action.ALLOW,
        reason=watch.reason,
        leak=watch.leak,
        tags=watch.tags,
    )


def reply_record(text: str, now: float) -> ReplyRecord:
    """Return what is kept of an assistant's reply."""
    return ReplyRecord(kind=classify_reply(text), excerpt=excerpt_of(text), timestamp=now)


class ReplyWatch:
    """Reads one answer as it grows; `is_bad` stays true once it is."""

    def __init__(
        self, instinct: FrozenInstinct, mode: Mode, *, protected: Protected = _NOTHING
    ) -> None:
        self._instinct = instinct
        self._is_suspect = mode >= WATCH_FROM
        self._protected = protected
        # The end of what was read before: what is said across two pieces is read whole.
        self._tail = ""
        self.reason = ""
        self.leak = ""

    @property
    def is_bad(self) -> bool:
        """Whether the answer is to be cut."""
        return bool(self.reason)

    @property
    def tags(self) -> tuple[str, ...]:
        """What others call what was found."""
        return reply_tags(self.reason, self.leak)

    def feed(self, piece: str) -> bool:
        """Judge the answer with `piece` added to it; returns `is_bad`."""
        if self.is_bad or not piece:
            return self.is_bad
        known = len(self._tail)
        # Models send emoji in halves, one surrogate per chunk.
        text = without_lone_surrogates(self._tail + piece)
        self.reason = self._violation(text, known) or self._detail(text, known)
        # Kept as received: the other half of a surrogate pair may come with the next piece.
        self._tail = (self._tail + piece)[-_DETAIL_CHARS:]
        return self.is_bad

    def _violation(self, text: str, known: int) -> str:
        # Windows that end in text not read before; earlier ones were judged already.
        start = max(0, known - WINDOW_CHARS + _STEP_CHARS)
        for at in range(start, len(text), _STEP_CHARS):
            window = text[at : at + WINDOW_CHARS]
            self.leak = leak_in(window, self._protected)
            if self.leak:
                return self.leak
            reading = self._instinct.assess(read_text(_without_refusals(window)), now=0.0)
            if reading.is_hard:
                return "a hard violation"
            if self._is_suspect and reading.is_blocking and reading.violated:
                return "a violation in a suspect conversation"
            if at + WINDOW_CHARS >= len(text):
                break
        return ""

    def _detail(self, text: str, known: int) -> str:
        if not self._is_suspect:
            return ""
        step = _DETAIL_CHARS // 2
        for at in range(max(0, known - step), len(text), step):
            kind = classify_reply(_without_refusals(text[at : at + _DETAIL_CHARS]))
            if kind is ReplyKind.OPERATIONAL:
                return "operational detail in a suspect conversation"
            if at + _DETAIL_CHARS >= len(text):
                break
        return ""


def _without_refusals(text: str) -> str:
    """Return `text` without the sentences that refuse: they may name what they refuse."""
    if classify_reply(text) not in (ReplyKind.REFUSED, ReplyKind.PARTIAL):
        return text
    sentences = _SENTENCE_END.split(text)
    return "\n".join(s for s in sentences if classify_reply(s) is not ReplyKind.REFUSED)
