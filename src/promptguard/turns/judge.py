"""The judgement of one turn: text, model, rules, signals, ledger, mode, action, in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role
from promptguard.errors import InputError
from promptguard.fil.engine import FrozenInstinct
from promptguard.model.encoder import shared_encoder
from promptguard.model.reading import ContextReading, MessageReading
from promptguard.protocols import Encoder, FilReading, Signal, SignalScore, TurnContext
from promptguard.risk.ledger import add_turn, risk_of, total
from promptguard.risk.modes import mode_for
from promptguard.risk.policy import action_for
from promptguard.risk.weights import PRESETS, Weights, load_weights, shipped_weights
from promptguard.signals import load_signals
from promptguard.state import Ledger, SessionState
from promptguard.text.read import read_text
from promptguard.text.views import TextViews
from promptguard.turns.remember import remember
from promptguard.turns.tags import tags_for
from promptguard.turns.verdict import TurnInput, TurnVerdict

MAX_VIEWS = 4
MAX_TOOL_CONTENTS = 8
MODEL_SIGNALS = frozenset({"semantic", "context"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnJudge:
    """Judges turns. Holds only what is read once: model, rules, weights, signals.

    `judge` is pure: the same state, input and time give the same verdict, bit for bit.
    """

    config: ControllerConfig
    encoder: Encoder | None
    instinct: FrozenInstinct
    weights: Weights
    prior: float
    signals: tuple[tuple[str, Signal], ...]

    @classmethod
    def open(cls, config: ControllerConfig, *, encoder: Encoder | None = None) -> TurnJudge:
        """Read what the configuration names; `encoder` replaces the embedded model."""
        weights = load_weights(Path(config.weights)) if config.weights else shipped_weights()
        share = config.false_positive_budget or PRESETS[config.preset]
        registry = load_signals()
        names = registry.names() if config.signals is None else config.signals
        instinct = FrozenInstinct.load(extra_paths=config.rules)
        prior = weights.prior_for(share)
        if not config.use_model:  # silence of the model is no evidence of innocence
            names = tuple(name for name in names if name not in MODEL_SIGNALS)
            weights = weights.for_rules_alone(prior, instinct.parameters.base.block_at)
        return cls(
            config=config,
            encoder=(encoder or shared_encoder()) if config.use_model else None,
            instinct=instinct,
            weights=weights,
            prior=prior,
            signals=tuple((name, registry.get(name)) for name in names),
        )

    def judge(
        self, state: SessionState, turn: TurnInput, *, now: float
    ) -> tuple[TurnVerdict, SessionState]:
        """Return the verdict on one more turn, and the state with that turn recorded."""
        ctx = self.context_of(state, turn, now=max(now, state.updated))
        scores = tuple(signal(ctx) for _, signal in self.signals)
        if turn.judged is not None:
            scores += (SignalScore(name="judge", score=turn.judged, reason="further judge"),)
        ledger = add_turn(state.ledger, ctx.turn, scores, self.weights, self.prior)
        verdict = self._decide(ctx, scores, ledger)
        return verdict, remember(ctx, verdict, ledger, self.instinct.parameters.escalation)

    def context_of(self, state: SessionState, turn: TurnInput, *, now: float) -> TurnContext:
        """Return everything the signals may look at."""
        if len(turn.text) > self.config.max_chars:
            raise InputError(
                f"The message has {len(turn.text)} characters, more than max_chars "
                f"({self.config.max_chars}); shorten it or raise the setting."
            )
        views = read_text(turn.text)
        fil = self.instinct.assess(
            views,
            state.history,
            now=now,
            persona=self.config.persona,
            use_temporal=self.config.use_temporal,
        )
        reading, context = self._read(state, turn, views)
        return TurnContext(
            state=state,
            turn=state.turn_count + 1,
            now=now,
            text=turn.text,
            views=views,
            fil=fil,
            message_risk=message_risk(reading, fil),
            reading=reading,
            context=context,
            embedding=None if reading is None else reading.embedding,
            untrusted=self._read_tools(turn.tool_contents),
            history_rewritten=turn.history_rewritten,
            client=turn.client,
        )

    def _decide(
        self, ctx: TurnContext, scores: tuple[SignalScore, ...], ledger: Ledger
    ) -> TurnVerdict:
        risk = risk_of(total(ledger), self.prior)
        mode = mode_for(risk, self.weights.modes, ctx.state.mode)
        return TurnVerdict(
            turn=ctx.turn,
            risk=risk,
            message_risk=ctx.message_risk,
            mode=mode,
            action=action_for(mode, self.config.policy, is_hard=ctx.fil.is_hard),
            is_hard=ctx.fil.is_hard,
            evidence=tuple(entry for entry in ledger.entries if entry.turn == ctx.turn),
            scores=scores,
            fil=ctx.fil,
            tags=tags_for(ctx, scores),
            disguises=ctx.views.disguises,
            decoded=ctx.views.decoded,
            is_truncated=ctx.views.is_truncated
            or (ctx.reading is not None and ctx.reading.is_truncated),
        )

    def _read(
        self, state: SessionState, turn: TurnInput, views: TextViews
    ) -> tuple[MessageReading | None, ContextReading | None]:
        if self.encoder is None:
            return None, None
        readings = self.encoder.read_messages(views.texts[:MAX_VIEWS])
        worst = max(readings, key=lambda reading: reading.attack)
        said = [
            *said_before(state),
            Message(role=Role.USER, content=views.plain or turn.text),
            *(Message(role=Role.TOOL, content=text) for text in turn.tool_contents),
        ]
        return replace(worst, embedding=readings[0].embedding), self.encoder.read_context(said)

    def _read_tools(self, contents: Sequence[str]) -> tuple[MessageReading, ...]:
        if self.encoder is None or not contents:
            return ()
        readings = self.encoder.read_messages(
            [read_text(content).plain for content in contents[:MAX_TOOL_CONTENTS]]
        )
        return tuple(as_untrusted(reading) for reading in readings)


def said_before(state: SessionState) -> list[Message]:
    """Return the remembered turns and replies as messages."""
    messages = []
    for record in state.recent:
        messages.append(Message(role=Role.USER, content=record.excerpt))
        if record.reply is not None and record.reply.excerpt:
            messages.append(Message(role=Role.ASSISTANT, content=record.reply.excerpt))
    return messages


def as_untrusted(reading: MessageReading) -> MessageReading:
    """Return the reading of a document: what it tells of matters only if it gives orders."""
    return replace(
        reading, attack=min(reading.attack, max(reading.manipulative, reading.extractive))
    )


def message_risk(reading: MessageReading | None, fil: FilReading) -> float:
    """Return the risk of a message taken alone: the model's word, or the rules' where louder."""
    rules = fil.harm_score if fil.violated else 0.5 * fil.harm_score
    return max(rules, reading.attack if reading is not None else 0.0)
