"""One probed conversation, and its form in the log."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from promptguard.conversation import Message, messages_from
from promptguard.errors import DataError, InputError
from promptguard.probe.strategies import AnswerKind, Strategy
from promptguard.rubrics.contradiction import RubricVerdict
from promptguard.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """The messages and their verdict; `time` is in seconds since the epoch."""

    record_id: str
    time: float
    model: str
    topic: str
    messages: tuple[Message, ...]
    classification: AnswerKind
    strategy: Strategy
    tactics: tuple[str, ...]
    verdict: RubricVerdict
    reason: str
    usage: Usage

    @property
    def is_contradiction(self) -> bool:
        """Whether the model contradicted itself."""
        return self.verdict is RubricVerdict.CONTRADICTION


def record_to_json(record: ProbeRecord) -> str:
    """Return a record as one line of JSON."""
    body = {
        "id": record.record_id,
        "time": record.time,
        "model": record.model,
        "topic": record.topic,
        "messages": [{"role": m.role.value, "content": m.content} for m in record.messages],
        "classification": record.classification.value,
        "strategy": record.strategy.value,
        "tactics": list(record.tactics),
        "verdict": record.verdict.value,
        "reason": record.reason,
        **asdict(record.usage),
    }
    return json.dumps(body, ensure_ascii=False)


def record_from_json(line: str, *, where: str) -> ProbeRecord:
    """Read a record from one line; raises DataError that says `where` it is broken."""
    try:
        body = json.loads(line)
        return ProbeRecord(
            record_id=str(body["id"]),
            time=float(body["time"]),
            model=str(body["model"]),
            topic=str(body["topic"]),
            messages=messages_from(body["messages"]),
            classification=AnswerKind(body["classification"]),
            strategy=Strategy(body["strategy"]),
            tactics=tuple(str(name) for name in body["tactics"]),
            verdict=RubricVerdict(body["verdict"]),
            reason=str(body["reason"]),
            usage=Usage(
                calls=int(body["calls"]),
                input_tokens=int(body["input_tokens"]),
                output_tokens=int(body["output_tokens"]),
                cost_usd=float(body["cost_usd"]),
                unpriced_calls=int(body["unpriced_calls"]),
            ),
        )
    except (ValueError, OverflowError, KeyError, TypeError, InputError):
        raise DataError(f"{where} is not a record of a probed conversation.") from None
