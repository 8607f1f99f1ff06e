"""What operators decided: texts that may pass, settings put in force. Recorded once, never changed.

A decision is taken back by a later one, so that the record tells who decided what, and when.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter, ValidationError

from promptguard.errors import DataError


class DecisionKind(StrEnum):
    """What was decided; `withdraw` takes back the allowance whose number is its body."""

    APPLY = "apply"
    ALLOW = "allow"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision as it is stored; `number` is given by the store and rises."""

    kind: DecisionKind
    author: str
    timestamp: float
    body: str
    tenant: str = "default"
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSettings:
    """Settings that stand over those of the file; without any, the file's hold again.

    `weights` names a file of the weights folder, `sha256` what was in it when it was applied.
    """

    preset: str = ""
    weights: str = ""
    sha256: str = ""

    @property
    def name(self) -> str:
        """The settings in words."""
        if self.weights:
            return f"weights {self.weights}"
        return f"preset {self.preset}" if self.preset else "the settings file"

    def to_json(self) -> str:
        """Return the body of a decision."""
        return _APPLIED.dump_json(self).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A text that passes in one tenant until `expires`, in seconds since the epoch.

    Only the text's hash is kept. `application` is the API key's name, empty for every one of the
    tenant. `session_id` and `turn` say where the text was seen.
    """

    text_hash: str
    expires: float
    application: str = ""
    session_id: str = ""
    turn: int = 0
    note: str = ""

    def to_json(self) -> str:
        """Return the body of a decision."""
        return _ALLOWANCE.dump_json(self, ensure_ascii=True).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """An allowance with who gave it, as it is listed and looked up."""

    number: int
    tenant: str
    author: str
    timestamp: float
    allowance: Allowance

    @property
    def reason(self) -> str:
        """What a verdict says of it: no word of the text."""
        return f"allowance {self.number} by {self.author or 'local'}"


class Permissions:
    """The allowances that were not withdrawn, looked up by exact text."""

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        given: dict[str, Permission] = {}
        # Oldest first, so that a withdrawal finds the allowance that it takes back.
        for decision in decisions:
            if decision.kind is DecisionKind.ALLOW:
                given[str(decision.number)] = _permission(decision)
            elif decision.kind is DecisionKind.WITHDRAW:
                given.pop(decision.body, None)
        self.given = tuple(given.values())
        self._by_text: dict[tuple[str, str], list[Permission]] = {}
        for each in self.given:
            self._by_text.setdefault((each.tenant, each.allowance.text_hash), []).append(each)

    def find(self, tenant: str, application: str, text: str, *, now: float) -> Permission | None:
        """Return what lets a text pass now; None where nothing does."""
        for each in self._by_text.get((tenant, text_hash(text)), ()):
            if each.allowance.application in ("", application) and now < each.allowance.expires:
                return each
        return None


def text_hash(text: str) -> str:
    """Return the hash of a text that is the same whatever its case, spacing and Unicode form."""
    # Composed last: casefolding takes some letters apart.
    plain = unicodedata.normalize("NFC", " ".join(text.split()).casefold())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def applied_in(decisions: Iterable[Decision]) -> AppliedSettings:
    """Return the settings that the newest decision put in force."""
    newest = max(
        (each for each in decisions if each.kind is DecisionKind.APPLY),
        key=lambda each: each.number,
        default=None,
    )
    if newest is None:
        return AppliedSettings()
    try:
        return _APPLIED.validate_json(newest.body)
    except ValidationError:
        raise DataError("Stored settings do not have the expected form.") from None


def _permission(decision: Decision) -> Permission:
    try:
        allowance = _ALLOWANCE.validate_json(decision.body)
    except ValidationError:
        raise DataError("A stored allowance does not have the expected form.") from None
    return Permission(
        number=decision.number,
        tenant=decision.tenant,
        author=decision.author,
        timestamp=decision.timestamp,
        allowance=allowance,
    )


_APPLIED: TypeAdapter[AppliedSettings] = TypeAdapter(AppliedSettings)
_ALLOWANCE: TypeAdapter[Allowance] = TypeAdapter(Allowance)
