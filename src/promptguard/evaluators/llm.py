"""A language model as judge: how it is asked, and how its answer becomes a judgement."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping

from promptguard.conversation import Message, Role
from promptguard.errors import EvaluationError, JudgeReplyError, ProviderError
from promptguard.evaluators.prompts import evaluation_prompt, frame
from promptguard.evaluators.registry import Metered, cannot_judge
from promptguard.evaluators.reply import NoVerdict, OutOfRange, read_reply
from promptguard.protocols import Completion, LayerJudgement, LayerTask, Provider
from promptguard.usage import Usage

MAX_REPLY_TOKENS = 2048
ATTEMPTS = 2

# Steps instead of bounds: engines that constrain decoding enforce a list, but not a range.
_NUMBER = {"type": "number", "enum": [step / 20 for step in range(21)]}


def unguessable_marker() -> str:
    """Return a marker that the writer of a text cannot know."""
    return secrets.token_hex(8)


class LlmJudge:
    """Judges with any Provider.

    The text under judgement is data between lines that carry a marker drawn for each call.
    An answer without a verdict is asked for once more, then it is a JudgeReplyError.
    """

    def __init__(
        self, provider: Provider, *, draw_marker: Callable[[], str] = unguessable_marker
    ) -> None:
        self._provider = provider
        self._draw_marker = draw_marker

    @property
    def name(self) -> str:
        """The model's name, as configured."""
        return self._provider.name

    def version_of(self, evaluation_type: str) -> str:
        """Return the version of the whole prompt for an evaluation type: its text and the frame."""
        return f"{evaluation_prompt(evaluation_type).version}+{frame().version}"

    @property
    def is_price_known(self) -> bool:
        """Whether the cost of a call will be known."""
        return not isinstance(self._provider, Metered) or self._provider.is_price_known

    @property
    def is_free(self) -> bool:
        """Whether a call costs nothing."""
        return isinstance(self._provider, Metered) and self._provider.is_free

    async def judge(self, task: LayerTask) -> LayerJudgement:
        """Ask the model; raises EvaluationError naming type, model and layer.

        The judgement, or the error, carries the usage of every call that was made for it.
        """
        usage = Usage()
        for _ in range(ATTEMPTS):
            marker = self._draw_marker()
            completion = await self._ask(task, marker, spent=usage)
            usage += completion.usage
            try:
                reply = read_reply(
                    completion.text, marker=marker, material=f"{task.context}\n{task.content}"
                )
            except NoVerdict:
                continue
            except OutOfRange as fault:
                raise self._refused(task, str(fault), usage) from None
            return LayerJudgement(
                value=reply.value,
                evaluation_type=task.evaluation_type,
                model=self.name,
                reasoning=reply.reasoning,
                usage=usage,
            )
        raise self._refused(task, f"no verdict in {ATTEMPTS} answers", usage)

    async def _ask(self, task: LayerTask, marker: str, *, spent: Usage) -> Completion:
        try:
            return await self._provider.complete(
                messages_for(task, marker),
                schema=verdict_schema(marker),
                max_tokens=MAX_REPLY_TOKENS,
            )
        except ProviderError as error:
            words = f"could not judge the {task.layer} layer for {task.evaluation_type}: {error}"
            usage = spent + error.usage
            raise cannot_judge(task, self.name, words.removesuffix("."), usage) from error

    def _refused(self, task: LayerTask, why: str, usage: Usage) -> EvaluationError:
        where = f"the {task.layer} layer for {task.evaluation_type}"
        words = f"gave no usable verdict on {where}: {why}"
        return cannot_judge(task, self.name, words, usage, JudgeReplyError)


def messages_for(task: LayerTask, marker: str) -> tuple[Message, ...]:
    """Return what the model is sent: rules and question first, then the blocks of data."""
    prompt = evaluation_prompt(task.evaluation_type)
    # Not `format`, because the text holds braces of JSON.
    rules = frame().text.replace("{question}", prompt.text).replace("{marker}", marker)
    facts = json.dumps({"layer": task.layer, "turns_before": task.turn})
    blocks = [_block(marker, "facts", facts)]
    if task.context:
        blocks.append(_block(marker, "context", task.context))
    blocks.append(_block(marker, "layer", task.content))
    return (
        Message(role=Role.SYSTEM, content=rules),
        Message(role=Role.USER, content="\n".join(blocks)),
    )


def verdict_schema(marker: str) -> Mapping[str, object]:
    """Return the JSON schema of an answer; reasoning comes first so that numbers follow it."""
    return {
        "type": "object",
        "properties": {
            "marker": {"type": "string", "enum": [marker]},
            "reasoning": {"type": "string", "maxLength": 400},
            "truth": _NUMBER,
            "indeterminacy": _NUMBER,
            "falsehood": _NUMBER,
        },
        "required": ["marker", "reasoning", "truth", "indeterminacy", "falsehood"],
        "additionalProperties": False,
    }


def _block(marker: str, name: str, text: str) -> str:
    return f"[{marker} {name}]\n{text}\n[{marker} end]"
