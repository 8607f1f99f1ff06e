"""A whole conversation, judged turn by turn; and a stored one, read back to be judged again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from promptguard.conversation import Role
from promptguard.errors import InputError
from promptguard.state import SessionProfile, SessionState, TranscriptEntry
from promptguard.turns.input import Content, Step, TurnInput
from promptguard.turns.judge import ALLOWANCE, JUDGE, TurnJudge
from promptguard.turns.replies import reply_record
from promptguard.verdict import Verdict

SECONDS_BETWEEN_TURNS = 30.0


def walk(
    judge: TurnJudge,
    steps: Sequence[Step],
    *,
    session_id: str = "walk",
    start: float = 0.0,
    turns: int = 0,
) -> Iterator[tuple[Verdict, SessionState]]:
    """Judge turn after turn; yields each verdict with the state after it.

    Missing timestamps count as half a minute between turns. `turns` came before and are only
    counted.
    """
    profile = SessionProfile(turns=turns)
    state = SessionState(session_id=session_id, created=start, profile=profile)
    now = start
    for step in steps:
        now = step.timestamp if step.timestamp is not None else now + SECONDS_BETWEEN_TURNS
        verdict, state = judge.judge(state, step.turn, now=now)
        if step.reply is not None:
            # Replies are part of the past that later turns are judged by.
            state = state.with_reply(verdict.turn, reply_record(step.reply, now))
        yield verdict, state


def steps_from(entries: Sequence[TranscriptEntry], *, system: str = "") -> tuple[Step, ...]:
    """Return stored messages as turns that can be judged again; needs their text."""
    if any(entry.content is None for entry in entries):
        raise InputError(
            "The text of this session was not kept (store_text, retention), so it cannot be "
            "judged again."
        )
    turns: dict[int, list[TranscriptEntry]] = {}
    for entry in entries:
        turns.setdefault(entry.turn, []).append(entry)
    return tuple(_step(stored, system) for _, stored in sorted(turns.items()))


def _step(stored: Sequence[TranscriptEntry], system: str) -> Step:
    texts = {role: [e.content or "" for e in stored if e.role is role] for role in Role}
    verdict = next((Verdict.from_json(e.verdict) for e in stored if e.verdict), None)
    origins = {f.index: f.origin for f in verdict.content} if verdict is not None else {}
    scores = verdict.scores if verdict is not None else ()
    evidence = verdict.evidence if verdict is not None else ()
    return Step(
        turn=TurnInput(
            text="\n".join(texts[Role.USER]),
            contents=tuple(
                Content(text=text, origin=origins.get(index, "tool"))
                for index, text in enumerate(texts[Role.TOOL])
            ),
            system=system,
            # What a further judge or an operator said is part of the record: nobody is asked again.
            judged=next((score.score for score in scores if score.name == JUDGE), None),
            allowance=next((e.reason for e in evidence if e.signal == ALLOWANCE), ""),
        ),
        reply="\n".join(texts[Role.ASSISTANT]) or None,
        timestamp=stored[0].timestamp,
    )
