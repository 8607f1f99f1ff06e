"""The judgement of one turn: text, readers, rules, signals, risk, action, in that order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from promptguard.computations import checkpoint
from promptguard.config import ControllerConfig
from promptguard.conversation import Message, Role
from promptguard.errors import EvaluationError, InputError, PromptGuardError
from promptguard.fil.engine import FrozenInstinct
from promptguard.model.readers import shared_readers
from promptguard.model.reading import ContextReading, MessageReading
from promptguard.patterns.wordlist import Concepts, shipped_concepts
from promptguard.protocols import Encoder, FilReading, Signal, TurnContext
from promptguard.risk.ledger import CONTENT, weigh
from promptguard.risk.weights import PRESETS, Priors, Weights, named_weights
from promptguard.signals import load_signals
from promptguard.signals.subject import subjects_of
from promptguard.state import SessionState
from promptguard.text.read import TextViews, read_text
from promptguard.turns.contents import ContentJudge
from promptguard.turns.input import TurnInput
from promptguard.turns.labels import WORTH_SHOWING, labels_of
from promptguard.turns.result import remember, with_verdict
from promptguard.turns.segments import SEGMENT_CHARS, riskiest_segments
from promptguard.turns.system_prompt import focused, rules_of
from promptguard.verdict import ContentFinding, Evidence, SignalScore, Verdict

MODEL_SIGNALS = frozenset({"semantic", "context"})
JUDGE = "judge"
ALLOWANCE = "allowance"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnJudge:
    """Judges turns. Holds only what is read once: readers, rules, weights, signals.

    `judge` is pure: the same state, input and time give the same verdict, bit for bit.
    """

    config: ControllerConfig
    encoder: Encoder | None
    instinct: FrozenInstinct
    concepts: Concepts
    weights: Weights
    priors: Priors
    signals: tuple[tuple[str, Signal], ...]
    contents: ContentJudge

    @classmethod
    def open(
        cls,
        config: ControllerConfig,
        *,
        encoder: Encoder | None = None,
        instinct: FrozenInstinct | None = None,
    ) -> TurnJudge:
        """Read what the configuration names.

        `encoder` replaces the embedded readers, `instinct` rules that were read before.
        """
        weights = named_weights(config.weights)
        share = config.false_positive_budget or PRESETS[config.preset]
        priors = weights.priors_for(share)
        instinct = instinct or FrozenInstinct.load(
            extra_paths=config.rules, settings=config.temporal
        )
        signals = load_signals(config.signals)
        used: Encoder | None = None
        if config.use_model:
            used = encoder or shared_readers()
        else:  # silence of the readers is no evidence of innocence
            signals = tuple((name, s) for name, s in signals if name not in MODEL_SIGNALS)
            if not config.weights:  # priors of one's own were fitted to what runs
                priors = weights.quiet(priors)
            weights = weights.for_rules_alone(priors, instinct.parameters.base.block_at)
        signals = tuple(
            (name, s) for name, s in signals if weights.weight_of(name).from_share <= share
        )
        return cls(
            config=config,
            encoder=used,
            instinct=instinct,
            concepts=shipped_concepts(),
            weights=weights,
            priors=priors,
            signals=signals,
            contents=ContentJudge(
                encoder=used,
                instinct=instinct,
                weights=weights,
                prior=priors.document,
                policy=config.policy,
            ),
        )

    def judge(
        self, state: SessionState, turn: TurnInput, *, now: float
    ) -> tuple[Verdict, SessionState]:
        """Return the verdict on one more turn, and the state with that turn recorded."""
        # A replay of thousands of turns can be ended, or made to wait, between two of them.
        checkpoint()
        # A clock that runs backwards is held still: no age or pause is ever negative.
        ctx = self.context_of(state, turn, now=max(now, state.updated))
        # A turn of an agent's loop brings contents and no words: the user did nothing in it.
        scores = self._scores(ctx) if turn.text.strip() or not turn.contents else ()
        evidence = self.weights.evidence(ctx.turn, scores)
        if scores and self._is_in_doubt(ctx, evidence):
            ctx = self._deepened(ctx, turn)
            scores = self._scores(ctx)
            evidence = self.weights.evidence(ctx.turn, scores)
        findings: tuple[ContentFinding, ...] = ()
        if turn.contents:
            findings = self.contents.judge(turn.contents, task_of(state, turn))
        return self._decided(ctx, turn, scores, evidence, findings)

    def reconsider(
        self,
        state: SessionState,
        verdict: Verdict,
        after: SessionState,
        judged: float,
        *,
        now: float,
    ) -> tuple[Verdict, SessionState]:
        """Return verdict and state with a second opinion added; nothing is read again.

        `state` is the session before the turn, `after` the one `verdict` led to.
        """
        entry = self._further(verdict.turn, judged)
        score = SignalScore(name=JUDGE, score=judged, reason=entry.reason)
        # `weigh` adds the riskiest content's entry itself; kept here it would count twice.
        evidence = tuple(e for e in verdict.evidence if e.signal not in (CONTENT, ALLOWANCE))
        evidence = (*evidence, entry)
        for permitted in (e for e in verdict.evidence if e.signal == ALLOWANCE):
            evidence = (*evidence, self.allowed(verdict.turn, evidence, permitted.reason))
        revised = weigh(
            state,
            turn=verdict.turn,
            prior=self.prior_at(verdict.turn),
            evidence=evidence,
            findings=verdict.content,
            is_hard=verdict.is_hard,
            now=max(now, state.updated),
            weights=self.weights,
            policy=self.config.policy,
        )
        changed = replace(
            verdict,
            action=revised.action,
            mode=revised.mode,
            turn_risk=revised.turn_risk,
            accumulated_risk=revised.accumulated_risk,
            is_locked=revised.lock is not None,
            evidence=revised.evidence,
            scores=(*verdict.scores, score),
        )
        return changed, with_verdict(state, after, changed, revised.ledger, revised.lock)

    def context_of(self, state: SessionState, turn: TurnInput, *, now: float) -> TurnContext:
        """Return everything the signals may look at, by the quick reader."""
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
        reading = self._read_message(views, thorough=False)
        embedding = None if reading is None else reading.embedding
        return TurnContext(
            state=state,
            turn=state.profile.turns + 1,
            now=now,
            text=turn.text,
            views=views,
            fil=fil,
            subjects=subjects_of(state, views, fil, embedding),
            message_risk=message_risk(reading, fil),
            reading=reading,
            context=self._read_context(state, turn, views, thorough=False),
            embedding=embedding,
            concepts=self.concepts.match(views.folded),
            rules=rules_of(turn.system or state.system),
            history_rewritten=turn.history_rewritten,
            client=turn.client,
        )

    def _deepened(self, ctx: TurnContext, turn: TurnInput) -> TurnContext:
        """Return the context with the thorough reader's reading in it."""
        reading = self._read_message(ctx.views, thorough=True)
        return replace(
            ctx,
            reading=reading,
            message_risk=message_risk(reading, ctx.fil),
            context=self._read_context(ctx.state, turn, ctx.views, thorough=True),
        )

    def _scores(self, ctx: TurnContext) -> tuple[SignalScore, ...]:
        """Return every signal's score; each sees the scores of those before it."""
        scores: list[SignalScore] = []
        earlier: dict[str, float] = {}
        # The context holds this very dictionary, which grows while the signals are computed.
        seen = replace(ctx, earlier=earlier)
        for name, signal in self.signals:
            score = bounded(_score(name, signal, seen))
            scores.append(score)
            earlier[name] = score.score
        return tuple(scores)

    def _is_in_doubt(self, ctx: TurnContext, evidence: Sequence[Evidence]) -> bool:
        if self.encoder is None:
            return False
        odds = self.prior_at(ctx.turn) + math.fsum(entry.nats for entry in evidence)
        return self.weights.doubt.low <= odds <= self.weights.doubt.high

    def prior_at(self, turn: int) -> float:
        """Return the log-odds before a session's turn was read."""
        return self.priors.first if turn == 1 else self.priors.later

    def _decided(
        self,
        ctx: TurnContext,
        turn: TurnInput,
        scores: tuple[SignalScore, ...],
        evidence: tuple[Evidence, ...],
        findings: tuple[ContentFinding, ...],
    ) -> tuple[Verdict, SessionState]:
        if turn.judged is not None:
            entry = self._further(ctx.turn, turn.judged)
            evidence = (*evidence, entry)
            scores = (*scores, SignalScore(name=JUDGE, score=turn.judged, reason=entry.reason))
        if turn.allowance:
            evidence = (*evidence, self.allowed(ctx.turn, evidence, turn.allowance))
        weighed = weigh(
            ctx.state,
            turn=ctx.turn,
            prior=self.prior_at(ctx.turn),
            evidence=evidence,
            findings=findings,
            is_hard=ctx.fil.is_hard,
            now=ctx.now,
            weights=self.weights,
            policy=self.config.policy,
        )
        # An ordinary turn, as most are, has neither tags nor telling words.
        is_ordinary = max(ctx.message_risk, weighed.own_risk) < WORTH_SHOWING and not (
            findings or ctx.fil.violated or ctx.history_rewritten
        )
        tags, spans = ((), ()) if is_ordinary else labels_of(ctx, weighed.own_risk, findings)
        verdict = Verdict(
            turn=ctx.turn,
            action=weighed.action,
            mode=weighed.mode,
            turn_risk=weighed.turn_risk,
            accumulated_risk=weighed.accumulated_risk,
            message_risk=ctx.message_risk,
            is_hard=ctx.fil.is_hard,
            is_locked=weighed.lock is not None,
            prior=self.prior_at(ctx.turn),
            evidence=weighed.evidence,
            scores=scores,
            content=findings,
            directives=ctx.fil.violated,
            rules=ctx.fil.rule_ids,
            tags=tags,
            disguises=ctx.views.disguises,
            spans=spans,
            readers=ctx.reading.readers if ctx.reading is not None else (),
            is_truncated=ctx.views.is_truncated
            or (ctx.reading is not None and ctx.reading.is_truncated)
            or any(f.is_truncated for f in findings),
        )
        if turn.allowance and not verdict.is_hard:
            # Else the same words, said again, would be a repeated violation, which is hard.
            ctx = replace(ctx, fil=FilReading())
        after = remember(ctx, verdict, weighed.ledger, self.instinct.parameters.escalation)
        return verdict, replace(after, lock=weighed.lock, system=system_of(ctx.state, turn))

    def allowed(self, turn: int, evidence: Sequence[Evidence], reason: str) -> Evidence:
        """Return what outweighs the other evidence, so that the turn looks like nothing at all.

        A hard violation, a lock and poisoned contents are decided elsewhere and stand.
        """
        own = self.prior_at(turn) + math.fsum(entry.nats for entry in evidence)
        nats = min(0.0, self.weights.memory.floor - own)
        return Evidence(turn=turn, signal=ALLOWANCE, nats=nats, reason=reason)

    def _further(self, turn: int, judged: float) -> Evidence:
        """Return the evidence of a second opinion, within the bounds of its weight."""
        nats = self.weights.weight_of(JUDGE).nats(judged)
        return Evidence(turn=turn, signal=JUDGE, nats=nats, reason=f"further judge {judged:.2f}")

    def _read_message(self, views: TextViews, *, thorough: bool) -> MessageReading | None:
        """Return the riskiest view's reading, with the embedding of the text as written."""
        if self.encoder is None:
            return None
        texts = views.texts
        # Most messages are short, and all of their views are read as they are.
        if max(map(len, texts)) > SEGMENT_CHARS:
            texts = riskiest_segments(texts)
        readings = self.encoder.read_messages(texts)
        worst = max(range(len(texts)), key=lambda index: readings[index].attack)
        chosen = readings[worst]
        if thorough:
            # The thorough reader takes several times as long, so that it gets one text only.
            chosen = self.encoder.read_messages([texts[worst]], thorough=True)[0]
        is_cut = any(reading.is_truncated for reading in readings)
        return replace(chosen, embedding=readings[0].embedding, is_truncated=is_cut)

    def _read_context(
        self, state: SessionState, turn: TurnInput, views: TextViews, *, thorough: bool
    ) -> ContextReading | None:
        if self.encoder is None:
            return None
        # A text of nothing but invisible characters has an empty plain form.
        said = [*said_before(state), Message(role=Role.USER, content=views.plain or turn.text)]
        system = system_of(state, turn)
        return self.encoder.read_context(said, system=system, thorough=thorough)


def _score(name: str, signal: Signal, ctx: TurnContext) -> SignalScore:
    """Return a signal's score; a failure, also of somebody else's signal, is the judge's."""
    try:
        return signal(ctx)
    except PromptGuardError:
        raise
    except Exception as error:
        # The kind alone: another package's message may quote what the user wrote.
        raise EvaluationError(f"The signal {name!r} failed: {type(error).__name__}.") from error


def system_of(state: SessionState, turn: TurnInput) -> str:
    """Return what the readers see of the application's prompt: this turn's, else the last given."""
    return focused(turn.system) if turn.system else state.system


def task_of(state: SessionState, turn: TurnInput) -> str:
    """Return what the user asked for: in an agent's loop, contents come after the words."""
    asked = (record.excerpt for record in reversed(state.recent) if record.excerpt)
    return turn.text or next(asked, "")


def said_before(state: SessionState) -> list[Message]:
    """Return the remembered turns and replies as messages."""
    messages = []
    for record in state.recent:
        messages.append(Message(role=Role.USER, content=record.excerpt))
        if record.reply is not None and record.reply.excerpt:
            messages.append(Message(role=Role.ASSISTANT, content=record.reply.excerpt))
    return messages


def bounded(score: SignalScore) -> SignalScore:
    """Return a signal's score held to [0,1], with a reason only where there is one to explain.

    A signal says what it computes; what is no number counts as nothing.
    """
    value = min(1.0, max(0.0, score.score)) if math.isfinite(score.score) else 0.0
    if value and value == score.score:
        return score
    return replace(score, score=value, reason=score.reason if value else "")


def message_risk(reading: MessageReading | None, fil: FilReading) -> float:
    """Return the risk of a message taken alone: the readers', or the rules' where higher."""
    rules = fil.harm_score if fil.violated else 0.5 * fil.harm_score
    return max(rules, reading.attack if reading is not None else 0.0)
