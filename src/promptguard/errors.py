"""What can go wrong, as one tree.

PromptGuardError
├── ConfigError            a setting is missing, unknown or contradictory
├── InputError             what the caller gave cannot be judged (also a ValueError)
├── DataError              a bundled or given data file is broken
├── ModelError             the embedded model cannot be loaded or verified
├── EvaluationError        a judge could not judge; names type, model and layer
│   ├── JudgeReplyError    the judge answered, but not with a verdict
│   └── BudgetError        the allowance of calls, time or money is spent
├── ProviderError          an upstream model failed
│   ├── ProviderTimeout    it did not answer in time
│   ├── ProviderRejected   it answered with an error status
│   └── CircuitOpen        it failed so often that it is left alone for a while
├── StoreError             sessions cannot be read or written
│   ├── VersionConflict    someone else saved this session first
│   └── SessionNotFound    there is no such session
└── Blocked                raised only where the caller asks for it: `raise_if_blocked`

A blocked conversation is a result, and an error only where the caller makes it one. Messages say
what to do and never contain the text under judgement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptguard.usage import Usage

if TYPE_CHECKING:  # the verdict's module raises errors of this one
    from promptguard.verdict import ContentFinding, Verdict


class PromptGuardError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigError(PromptGuardError):
    """A setting is missing, unknown or contradictory."""


class InputError(PromptGuardError, ValueError):
    """What the caller gave cannot be judged."""


class DataError(PromptGuardError):
    """A bundled or given data file is broken."""


class ModelError(PromptGuardError):
    """The embedded model cannot be loaded or verified."""


class EvaluationError(PromptGuardError):
    """A judge could not judge; `evaluation_type`, `model` and `layer` say which.

    `usage` is what the attempt cost all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        evaluation_type: str | None = None,
        model: str | None = None,
        layer: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.evaluation_type = evaluation_type
        self.model = model
        self.layer = layer
        self.usage = usage or Usage()


class JudgeReplyError(EvaluationError):
    """The judge answered, but not with a verdict."""


class BudgetError(EvaluationError):
    """The allowance of calls, time or money is spent."""


class ProviderError(PromptGuardError):
    """An upstream model failed; `provider` names the endpoint, `usage` what the calls cost."""

    def __init__(self, message: str, *, provider: str | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.usage = Usage()


class ProviderTimeout(ProviderError):
    """The upstream did not answer in time."""


class ProviderRejected(ProviderError):
    """The upstream answered with an error status, kept in `status`."""

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status: int = 0,
        body: bytes = b"",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, provider=provider)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


class CircuitOpen(ProviderError):
    """The upstream failed so often that it is left alone for a while."""


class StoreError(PromptGuardError):
    """Sessions cannot be read or written."""


class VersionConflict(StoreError):
    """Someone else saved this session first: load it again and repeat."""


class SessionNotFound(StoreError):
    """There is no such session."""


class Blocked(PromptGuardError):
    """A turn or a content that the policy refuses; `verdict` says why."""

    def __init__(self, message: str, verdict: Verdict | ContentFinding) -> None:
        # Both are `args`, by which a pickled exception is made again.
        super().__init__(message, verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        return str(self.args[0])
