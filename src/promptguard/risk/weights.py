"""The fitted numbers: how many nats a score is worth, how evidence fades, where modes begin."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from promptguard.errors import ConfigError
from promptguard.setting_faults import readable
from promptguard.verdict import Evidence, Mode, SignalScore

_HAIR = 1e-6  # above the line, whatever rounding does
# A risk of 0 or 1 has no log-odds.
_Start = Annotated[float, Field(gt=0, lt=1)]
_DOCUMENTS = frozenset(("order", "rules", "hidden", "bare"))
PRESETS = {"strict": 0.1, "balanced": 0.01, "permissive": 0.002}


class _Part(BaseModel):
    # A prior that is no number would let everything pass.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SignalWeight(_Part):
    """How a score becomes nats: `scale` · link(score), clipped to ± `limit`.

    Links: `linear` is the score itself, `logit` its log-odds. `later` is the scale from a session's
    second turn on, where it differs: in a talk the context tells more than the message alone. A
    scale of 0 makes the signal a measurement: it is computed and shown, and decides nothing.
    Under a budget of less than `from_share` the signal is not computed at all.
    """

    link: Literal["linear", "logit"]
    scale: float = Field(ge=0.0)
    later: float | None = Field(default=None, ge=0.0)
    limit: float = Field(default=8.0, gt=0.0)
    from_share: float = Field(default=0.0, ge=0.0, le=0.5)

    def scale_at(self, turn: int) -> float:
        """Return the scale that holds at a session's turn, counted from 1."""
        return self.scale if self.later is None or turn <= 1 else self.later

    def nats(self, score: float, *, turn: int = 1) -> float:
        """Return the evidence of one score."""
        scale = self.scale_at(turn)
        if self.link == "logit":
            # A score of exactly 0 or 1 has infinite log-odds.
            kept = min(max(score, 1e-6), 1 - 1e-6)
            value = scale * math.log(kept / (1 - kept))
        else:
            value = scale * score
        return min(max(value, -self.limit), self.limit)


class MemoryWeights(_Part):
    """How what a session has shown fades: by turns and by time, never below `residue`.

    `floor` is the log-odds of a session that has shown nothing.
    """

    half_life_turns: float = Field(gt=0)
    half_life_s: float = Field(gt=0)
    residue: Annotated[float, Field(ge=0, le=1)]
    floor: float = Field(lt=0)

    def kept(self, elapsed_s: float) -> float:
        """Return the share of evidence left after one turn and `elapsed_s` seconds."""
        return float(
            2.0 ** (-1.0 / self.half_life_turns) * 2.0 ** (-max(0.0, elapsed_s) / self.half_life_s)
        )


class ModeWeights(_Part):
    """The risk from which each mode holds, and how far below it must fall to be left."""

    CAUTIOUS: _Start
    ELEVATED: _Start
    SUSPECT: _Start
    CRITICAL: _Start
    UNSAFE: _Start
    hysteresis: float = Field(ge=0, lt=0.2)

    def starts(self) -> tuple[tuple[Mode, float], ...]:
        """Return the modes above SAFE with the risk at which each begins, in order."""
        return tuple((mode, getattr(self, mode.name)) for mode in Mode if mode is not Mode.SAFE)

    def mode_for(self, risk: float, previous: Mode = Mode.SAFE) -> Mode:
        """Return the mode of `risk`; a mode once entered is left only well below its start.

        Without that hysteresis a session would flicker between two modes.
        """
        reached = Mode.SAFE
        for mode, start in self.starts():
            bar = start - self.hysteresis if mode <= previous else start
            if risk >= bar:
                reached = mode
        return reached

    def odds_of(self, mode: Mode) -> float:
        """Return the log-odds of the risk at which a mode above SAFE begins."""
        start = dict(self.starts())[mode]
        return math.log(start / (1 - start))


class Priors(_Part):
    """Prior log-odds by kind of traffic: a session's first turn, a later one, a document."""

    first: float
    later: float
    document: float


class BudgetPriors(_Part):
    """The priors at which `share` of benign traffic of each kind reaches the blocking mode."""

    share: float = Field(gt=0, le=0.5)
    first: float
    later: float
    document: float


class DoubtWeights(_Part):
    """Where the thorough reader is asked: log-odds of the quick reading within these bounds."""

    low: float
    high: float


class Weights(_Part):
    """One versioned file of fitted numbers, with what it was fitted on."""

    version: str
    fitted_on: str
    signals: dict[str, SignalWeight]
    documents: dict[str, SignalWeight]
    memory: MemoryWeights
    doubt: DoubtWeights
    modes: ModeWeights
    budgets: tuple[BudgetPriors, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ordered(self) -> Weights:
        # `mode_for` and `_prior` walk through these in order and rely on it.
        starts = [start for _, start in self.modes.starts()]
        if starts != sorted(starts):
            raise ValueError("modes must begin in rising order")
        shares = [budget.share for budget in self.budgets]
        if shares != sorted(set(shares)):
            raise ValueError("budgets must be in rising order of share")
        if missing := _DOCUMENTS - self.documents.keys():
            raise ValueError(f"documents must have a weight for {min(missing)}")
        return self

    def weight_of(self, signal: str) -> SignalWeight:
        """Return a signal's weight; a signal without one would be silently ignored."""
        if signal not in self.signals:
            raise ConfigError(
                f"The signal {signal!r} has no weight; add [signals.{signal}] to the weights file "
                "(link, scale), with scale = 0 to measure without deciding."
            )
        return self.signals[signal]

    def evidence(self, turn: int, scores: Iterable[SignalScore]) -> tuple[Evidence, ...]:
        """Return what the signals' scores are worth at a session's turn; measurements are left out.

        A signal without a weight is a ConfigError.
        """
        found = []
        for score in scores:
            weight = self.weight_of(score.name)
            if weight.scale_at(turn):
                nats = weight.nats(score.score, turn=turn)
                found.append(Evidence(turn=turn, signal=score.name, nats=nats, reason=score.reason))
        return tuple(found)

    def priors_for(self, share: float) -> Priors:
        """Return the priors for a false-positive budget, between the fitted points.

        Outside the fitted range the nearest point holds: no promise is made beyond the data.
        """
        return Priors(**{kind: self._prior(share, kind) for kind in Priors.model_fields})

    def _prior(self, share: float, kind: str) -> float:
        # Shares lie orders of magnitude apart, so that their logarithms are interpolated.
        points = [(math.log(b.share), float(getattr(b, kind))) for b in self.budgets]
        wanted = math.log(share)
        if wanted <= points[0][0]:
            return points[0][1]
        for (left, low), (right, high) in pairwise(points):
            if wanted <= right:
                return low + (high - low) * (wanted - left) / (right - left)
        return points[-1][1]

    def quiet(self, priors: Priors) -> Priors:
        """Return the shipped priors for an engine without the model: what shows nothing stays SAFE.

        They were fitted with readers that speak against an attack in what is harmless.
        """
        most = self.modes.odds_of(Mode.CAUTIOUS) - _HAIR
        return Priors(**{kind: min(prior, most) for kind, prior in priors})

    def for_rules_alone(self, priors: Priors, block_at: float) -> Weights:
        """Return the weights of an engine without the model, where the rules decide.

        A rule score of `block_at`, from which the rules block by themselves, then reaches the
        blocking mode, in a turn at any place and in a document.
        """
        # What suffices from the lower prior suffices at any turn.
        lowest = min(priors.first, priors.later)
        fil = self._decisive(self.weight_of("fil"), lowest, block_at)
        rules = self._decisive(self.documents["rules"], priors.document, block_at)
        return self.model_copy(
            update={
                "signals": self.signals | {"fil": fil},
                "documents": self.documents | {"rules": rules},
            }
        )

    def _decisive(self, weight: SignalWeight, prior: float, block_at: float) -> SignalWeight:
        """Return the weight raised so far that a score of `block_at` alone reaches the block."""
        needed = self.modes.odds_of(Mode.CRITICAL) - prior + _HAIR
        # A later turn may have a scale of its own.
        least = min(weight.nats(block_at), weight.nats(block_at, turn=2))
        if weight.link != "linear" or least >= needed:
            return weight
        scale = needed / block_at
        # The limit must not cut the raised scale off again.
        return SignalWeight(link="linear", scale=scale, limit=max(weight.limit, scale))


@cache
def shipped_weights() -> Weights:
    """Return the weights that ship with the package."""
    return load_weights(Path(str(files("promptguard") / "data" / "weights.toml")))


def named_weights(path: str | None) -> Weights:
    """Return the weights of a setting: of the file that it names, else the shipped ones."""
    return load_weights(Path(path)) if path else shipped_weights()


def load_weights(path: Path) -> Weights:
    """Read a weights file; raises ConfigError saying what is wrong with it."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
        return Weights.model_validate(body)
    except OSError:
        raise ConfigError(f"Cannot read the weights file {path.absolute()}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {readable(error, Weights)}") from None
