"""A judge that replays what was judged before, by the hash of the text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from promptguard.config import PromptGuardConfig
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import ConfigError, DataError, InputError
from promptguard.evaluators.registry import JUDGES, cannot_judge
from promptguard.protocols import LayerJudgement, LayerTask

RecordKey = tuple[str, str]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    evaluation_type: str
    content_sha256: str
    truth: float
    indeterminacy: float
    falsehood: float
    model: str = ""
    reasoning: str = ""


class RecordedJudge:
    """Replays stored values at no cost; a text that was not recorded is an EvaluationError."""

    def __init__(
        self, judgements: Mapping[RecordKey, LayerJudgement], *, name: str = "recorded"
    ) -> None:
        self._judgements = dict(judgements)
        self._name = name

    @property
    def name(self) -> str:
        """The name it was configured under."""
        return self._name

    @property
    def evaluation_types(self) -> tuple[str, ...]:
        """The evaluation types that were recorded."""
        return tuple(dict.fromkeys(kind for kind, _ in self._judgements))

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Return what was recorded for this evaluation type and text."""
        found = self._judgements.get((task.evaluation_type, content_sha256(task.content)))
        if found is None:
            words = f"holds no {task.evaluation_type} of this {task.layer} layer; record it first"
            raise cannot_judge(task, self.name, words)
        return found


def content_sha256(content: str) -> str:
    """Return the hash by which a text is found again."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def recording_line(task: LayerTask, judgement: LayerJudgement) -> str:
    """Return one line of a recording: numbers, hash and reasoning, without the text."""
    truth, indeterminacy, falsehood = judgement.value.as_tuple()
    line = _Line(
        evaluation_type=task.evaluation_type,
        content_sha256=content_sha256(task.content),
        truth=truth,
        indeterminacy=indeterminacy,
        falsehood=falsehood,
        model=judgement.model,
        reasoning=judgement.reasoning,
    )
    return json.dumps(line.model_dump(), ensure_ascii=False)


def read_recording(lines: Iterable[str]) -> dict[RecordKey, LayerJudgement]:
    """Read lines as `recording_line` writes them; DataError names the line that is broken."""
    found: dict[RecordKey, LayerJudgement] = {}
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            line = _Line.model_validate_json(raw)
            value = Neutrosophic(line.truth, line.indeterminacy, line.falsehood)
        except (ValidationError, InputError):
            raise DataError(f"Line {number} of the recording is not a judgement.") from None
        found[line.evaluation_type, line.content_sha256] = LayerJudgement(
            value=value,
            evaluation_type=line.evaluation_type,
            model=line.model or "recorded",
            reasoning=line.reasoning,
        )
    return found


@JUDGES.register("recorded")
def open_recorded(path: str, _config: PromptGuardConfig) -> RecordedJudge:
    """Open `recorded:PATH`."""
    if not path:
        raise ConfigError("Name the recording: recorded:PATH.")
    try:
        with Path(path).open(encoding="utf-8") as lines:
            return RecordedJudge(read_recording(lines), name=f"recorded:{path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the recording {path}: {error}.") from None
