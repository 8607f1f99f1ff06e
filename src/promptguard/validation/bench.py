"""The bench on which contenders judge cases, with the code that serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from promptguard.config import PromptGuardConfig, config_hash
from promptguard.errors import ModelError, PromptGuardError
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Case
from promptguard.validation.engine_bench import EngineBench
from promptguard.validation.openers import Openers
from promptguard.validation.outcome import Outcome
from promptguard.validation.prompt_bench import PromptBench, question_of


class _Part(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...

    def judge(self, case: Case) -> tuple[Outcome, ...]: ...


class Bench:
    """All contenders together; one tuple of outcomes per case, in the contenders' order."""

    def __init__(self, contenders: Sequence[Contender], openers: Openers) -> None:
        self._names = tuple(contender.name for contender in contenders)
        self._parts: list[_Part] = []
        asking: dict[str, list[Contender]] = {}
        for contender in contenders:
            if isinstance(contender.settings, PromptGuardConfig):
                key = config_hash(question_of(contender.settings, ("any",)))
                asking.setdefault(key, []).append(contender)
            else:
                self._parts.append(EngineBench(contender, openers))
        self._parts += [PromptBench(group, openers) for group in asking.values()]

    def judge(self, case: Case) -> tuple[Outcome, ...]:
        """Return every contender's outcome; who could not judge says so in `error`."""
        found = {o.contender: o for part in self._parts for o in _judged(part, case)}
        return tuple(found[name] for name in self._names)


def _judged(part: _Part, case: Case) -> tuple[Outcome, ...]:
    try:
        return part.judge(case)
    except ModelError:
        raise
    except PromptGuardError as error:
        reason = str(error)
    except Exception as error:  # one case must not take the others with it
        reason = f"Judging failed with {type(error).__name__}."
    return tuple(Outcome(index=case.index, contender=name, error=reason) for name in part.names)
