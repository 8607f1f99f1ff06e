"""Turns, verdicts and explanations as HTML, for the session page and the playground."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from promptguard.conversation import Role
from promptguard.queries import FLAGGED_SEVERITY
from promptguard.service.dashboard.charts import Bar, Point, evidence_bars
from promptguard.service.dashboard.templates import render
from promptguard.service.verdicts import (
    ExplanationView,
    ReplayView,
    ShareView,
    is_judged,
    is_passing,
    stored_verdict,
)
from promptguard.state import ModeEntry, SessionState, TranscriptEntry
from promptguard.text.read import read_text
from promptguard.turns.judge import ALLOWANCE
from promptguard.turns.sentence import verdict_sentence
from promptguard.verdict import Evidence, Mode, Verdict

_MOST_BARS = 12
_MOST_FLAGGED = 100
_STRONG_NATS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One turn: its messages and its verdict; a text is None where texts are not kept."""

    turn: int
    timestamp: float
    user: str | None
    tools: tuple[str | None, ...] = ()
    replies: tuple[str | None, ...] = ()
    verdict: Verdict | None = None

    @property
    def gravity(self) -> tuple[int, float]:
        """How severe the verdict is and at which risk; least where there is none."""
        return (self.verdict.action.severity, self.verdict.turn_risk) if self.verdict else (0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptView:
    """What a page shows of a session: its newest turns whole, of the others what the chart needs.

    `flagged` are the newest turns that were interfered with, `worst` is the most severe of all.
    """

    turns: int = 0
    points: tuple[Point, ...] = ()
    latest: tuple[Card, ...] = ()
    flagged: tuple[Card, ...] = ()
    worst: Card | None = None


def transcript_view(entries: Sequence[TranscriptEntry], shown: int) -> TranscriptView:
    """Return what is shown of a transcript with `shown` turns of it whole."""
    cards = cards_of(entries)
    flagged = tuple(card for card in cards if card.gravity[0] >= FLAGGED_SEVERITY)
    return TranscriptView(
        turns=len(cards),
        points=points_of(cards),
        latest=cards[-shown:],
        flagged=flagged[-_MOST_FLAGGED:],
        worst=max(flagged, key=lambda card: card.gravity, default=None),
    )


def cards_of(entries: Sequence[TranscriptEntry]) -> tuple[Card, ...]:
    """Group a transcript by its turns, in order."""
    turns: dict[int, list[TranscriptEntry]] = {}
    for entry in entries:
        turns.setdefault(entry.turn, []).append(entry)
    return tuple(_card(turn, messages) for turn, messages in sorted(turns.items()))


def points_of(cards: Iterable[Card]) -> tuple[Point, ...]:
    """Return the points of the trajectory; turns that no judge could judge are left out."""
    return tuple(
        point_of(card.verdict)
        for card in cards
        if card.verdict is not None and is_judged(card.verdict)
    )


def point_of(verdict: Verdict) -> Point:
    """Return a verdict as a point of the trajectory."""
    return Point(
        turn=verdict.turn,
        risk=verdict.turn_risk,
        mode=verdict.mode,
        action=verdict.action,
        accumulated=verdict.accumulated_risk,
    )


def sentence_html(state: SessionState, worst: Card | None) -> Markup:
    """Say in one sentence what the guard makes of the session, by its most severe turn."""
    verdict = worst.verdict if worst else None
    told = verdict_sentence(verdict, worst.user) if worst and verdict else ""
    return render("session", "sentence", state, verdict, told)


def bars_of(evidence: Iterable[Evidence]) -> list[Bar]:
    """Return evidence as bars, the strongest for an attack first."""
    return [
        Bar(name=each.signal, nats=each.nats, reason=each.reason) for each in _by_nats(evidence)
    ]


def turn_html(card: Card) -> Markup:
    """Return a turn with its verdict beside it."""
    views = read_text(card.user) if card.user else None
    evidence = _by_nats(card.verdict.evidence if card.verdict else ())
    bars = evidence_bars(bars_of(evidence), title="Evidence in nats", width=310)
    strongest = [each for each in evidence if each.reason and abs(each.nats) >= _STRONG_NATS]
    # A turn needs a sentence where something was done, or somebody let it pass.
    is_allowed = any(each.signal == ALLOWANCE for each in evidence)
    is_told = is_allowed or card.gravity[0] >= FLAGGED_SEVERITY
    why = verdict_sentence(card.verdict, card.user) if card.verdict and is_told else ""
    return render("session", "turn", card, views, bars, strongest, why)


def explanation_html(explanation: ExplanationView) -> Markup:
    """Return the counterfactual, the message by itself, and contributions that add up."""
    by_signal, by_turn = _strongest(explanation.by_signal), _strongest(explanation.by_turn)
    by_turn = [replace(bar, name=_turn_name(int(bar.name))) for bar in by_turn]
    return render(
        "session",
        "explanation",
        explanation,
        counterfactual(explanation),
        evidence_bars(by_signal, title="Evidence by signal in nats"),
        evidence_bars(by_turn, title="Evidence by turn in nats"),
    )


def counterfactual(explanation: ExplanationView) -> Markup:
    """Say in one sentence what the last verdict depends on."""
    return render(
        "session",
        "counterfactual",
        explanation,
        is_passing(explanation.verdict.action),
        is_passing(explanation.alone.action),
    )


def replay_html(replay: ReplayView, name: str) -> Markup:
    """Say which turns the configuration called `name` judges otherwise."""
    changed = [
        each
        for each in replay.turns
        if (each.mode, each.action) != (each.other_mode, each.other_action)
    ]
    return render("session", "replay", changed, len(replay.turns), name)


def reached_html(entered: Sequence[ModeEntry]) -> Markup:
    """List the turn at which each mode above SAFE was first reached."""
    by_turn: dict[int, list[Mode]] = {}
    for entry in entered:
        if entry.mode is not Mode.SAFE:
            by_turn.setdefault(entry.turn, []).append(entry.mode)
    return render("session", "reached", by_turn)


def _card(turn: int, messages: Sequence[TranscriptEntry]) -> Card:
    texts = {role: [e.content for e in messages if e.role is role] for role in Role}
    users = [text for text in texts[Role.USER] if text is not None]
    verdicts = [verdict for entry in messages if (verdict := stored_verdict(entry))]
    return Card(
        turn=turn,
        timestamp=messages[0].timestamp,
        # A text that is kept in part would be shown as if it were whole.
        user="\n".join(users) if len(users) == len(texts[Role.USER]) else None,
        tools=tuple(texts[Role.TOOL]),
        replies=tuple(texts[Role.ASSISTANT]),
        verdict=verdicts[0] if verdicts else None,
    )


def _by_nats(evidence: Iterable[Evidence]) -> list[Evidence]:
    return sorted(evidence, key=lambda each: -each.nats)


def _strongest(shares: Sequence[ShareView]) -> list[Bar]:
    kept = sorted(shares, key=lambda share: -abs(share.nats))[:_MOST_BARS]
    return [
        Bar(name=each.name, nats=each.nats) for each in sorted(kept, key=lambda each: -each.nats)
    ]


def _turn_name(turn: int) -> str:
    return "earlier turns" if turn < 0 else f"turn {turn}"
