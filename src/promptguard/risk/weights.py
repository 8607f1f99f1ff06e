"""The fitted numbers: how many nats a score is worth, how evidence leaks, where modes begin."""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from promptguard.errors import ConfigError
from promptguard.state import Mode

_HAIR = 1e-6  # above the line, whatever rounding does
PRESETS = {"strict": 0.05, "balanced": 0.01, "permissive": 0.002}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SignalWeight(_Part):
    """How a score becomes nats: `scale` · link(score) + `shift`, clipped to ± `limit`.

    Links: `linear` is the score itself; `logit` its log-odds; `upper` is 0 up to one half and
    rises to 1 from there, for scores whose lower half says nothing. A score of 0 is no evidence,
    except under `logit`.

    An `event` adds its nats every turn; a `level` describes the whole conversation so far, so
    that only its change since the last turn is added.
    """

    kind: Literal["event", "level"]
    link: Literal["linear", "logit", "upper"]
    scale: float = Field(ge=0.0)
    shift: float = 0.0
    limit: float = Field(gt=0.0)

    def nats(self, score: float) -> float:
        """Return the evidence of one score."""
        if self.link == "logit":
            kept = min(max(score, 1e-6), 1 - 1e-6)
            value = self.scale * math.log(kept / (1 - kept)) + self.shift
        elif self.link == "upper":
            value = self.scale * max(0.0, 2 * score - 1)
        else:
            value = self.scale * score + (self.shift if score else 0.0)
        return min(max(value, -self.limit), self.limit)


class LeakWeights(_Part):
    """How evidence fades: suspicion slowly, credit for calm turns fast.

    From `slow_from_risk` on, the slow numbers hold. Suspicion keeps `residue` of itself for
    good; a calm turn takes at most `relief_nats` from it.
    """

    half_life_turns: float = Field(gt=0)
    slow_half_life_turns: float = Field(gt=0)
    slow_from_risk: float = Field(ge=0, le=1)
    credit_half_life_turns: float = Field(gt=0)
    residue: Annotated[float, Field(ge=0, le=1)]
    relief_nats: float = Field(ge=0)
    slow_relief_nats: float = Field(ge=0)


class ModeWeights(_Part):
    """The risk from which each mode holds, and how far below it must fall to be left."""

    CAUTIOUS: float
    ELEVATED: float
    SUSPECT: float
    CRITICAL: float
    UNSAFE: float
    hysteresis: float = Field(ge=0, lt=0.2)

    def starts(self) -> tuple[tuple[Mode, float], ...]:
        """Return the modes above SAFE with the risk at which each begins, in order."""
        return tuple((mode, getattr(self, mode.name)) for mode in Mode if mode is not Mode.SAFE)

    def odds_of(self, mode: Mode) -> float:
        """Return the log-odds of the risk at which a mode above SAFE begins."""
        start = dict(self.starts())[mode]
        return math.log(start / (1 - start))


class Budget(_Part):
    """The prior log-odds at which `share` of benign conversations reach the blocking mode."""

    share: float = Field(gt=0, le=0.5)
    prior: float


class Weights(_Part):
    """One versioned file of fitted numbers, with what it was fitted on."""

    version: str
    fitted_on: str
    signals: dict[str, SignalWeight]
    leak: LeakWeights
    modes: ModeWeights
    budgets: tuple[Budget, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ordered(self) -> Weights:
        starts = [start for _, start in self.modes.starts()]
        if starts != sorted(starts):
            raise ValueError("modes must begin in rising order")
        shares = [budget.share for budget in self.budgets]
        if shares != sorted(set(shares)):
            raise ValueError("budgets must be in rising order of share")
        return self

    def prior_for(self, share: float) -> float:
        """Return the prior log-odds for a false-positive budget, between the fitted points.

        Outside the fitted range the nearest point holds: no promise is made beyond the data.
        """
        points = [(math.log(budget.share), budget.prior) for budget in self.budgets]
        wanted = math.log(share)
        if wanted <= points[0][0]:
            return points[0][1]
        for (left, low), (right, high) in pairwise(points):
            if wanted <= right:
                return low + (high - low) * (wanted - left) / (right - left)
        return points[-1][1]

    def for_rules_alone(self, prior: float, block_at: float) -> Weights:
        """Return the weights of an engine without the model, where the rules decide.

        A rule score of `block_at`, from which the rules block by themselves, then reaches the
        blocking mode from a clean ledger.
        """
        needed = self.modes.odds_of(Mode.CRITICAL) - prior + _HAIR
        old = self.signals.get("fil")
        if old is None or old.link != "linear" or old.nats(block_at) >= needed:
            return self
        scale = needed / block_at
        fil = old.model_copy(update={"scale": scale, "limit": max(old.limit, scale), "shift": 0.0})
        return self.model_copy(update={"signals": self.signals | {"fil": fil}})


@cache
def shipped_weights() -> Weights:
    """Return the weights that ship with the package."""
    return load_weights(Path(str(files("promptguard") / "data" / "weights.toml")))


def load_weights(path: Path) -> Weights:
    """Read a weights file; raises ConfigError saying what is wrong with it."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
        return Weights.model_validate(body)
    except OSError:
        raise ConfigError(f"Cannot read the weights file {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "file"
        raise ConfigError(f"{path}: {where}: {fault['msg']}.") from None
