"""The weights file is checked, and budgets become priors."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from pydantic import ValidationError

from promptguard.config import PolicyConfig
from promptguard.errors import ConfigError
from promptguard.risk.ledger import action_for, content_action, locks, risk_of
from promptguard.risk.weights import SignalWeight, Weights, load_weights, shipped_weights
from promptguard.verdict import Action, Mode


@pytest.mark.parametrize("kind", ["first", "later", "document"])
def test_a_smaller_budget_takes_more_evidence(kind: str) -> None:
    """Allowing fewer false alarms lowers the prior, for every kind of traffic."""
    weights = shipped_weights()
    priors = [getattr(weights.priors_for(share), kind) for share in (0.002, 0.01, 0.03, 0.05)]
    assert priors == sorted(priors)


def test_no_promise_beyond_the_fitted_range() -> None:
    """Budgets outside the fitted points take the nearest point."""
    weights = shipped_weights()
    assert weights.priors_for(1e-9).first == weights.budgets[0].first
    assert weights.priors_for(0.5).document == weights.budgets[-1].document


def test_a_signal_without_a_weight_is_an_error_that_says_so() -> None:
    """It would otherwise be computed and silently ignored."""
    with pytest.raises(ConfigError, match=r"signals\.colour"):
        shipped_weights().weight_of("colour")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("not toml [", "TOML"),
        ("version = '1'", "fitted_on"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    """A file that cannot be used is named with its fault."""
    path = tmp_path / "weights.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_weights(path)


@pytest.mark.parametrize(
    ("shipped", "changed", "complaint"),
    [
        (r"first = [-\d.]+", "first = -inf", "finite"),
        (r"later = [-\d.]+", "later = nan", "finite"),
        (r"\[documents.hidden\]", "[documents.hiding]", "hidden"),
    ],
)
def test_numbers_that_would_let_everything_pass_are_refused(
    tmp_path: Path, shipped: str, changed: str, complaint: str
) -> None:
    """With a prior that is no number nothing is blocked; a weight that is missing is named."""
    source = files("promptguard").joinpath("data/weights.toml").read_text(encoding="utf-8")
    path = tmp_path / "weights.toml"
    path.write_text(re.sub(shipped, changed, source, count=1), encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        load_weights(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(ConfigError, match="nowhere"):
        load_weights(tmp_path / "nowhere.toml")


def test_without_the_model_the_rules_block_by_themselves() -> None:
    """From the score at which the rules block, their evidence alone reaches the blocking range."""
    weights = shipped_weights()
    priors = weights.priors_for(0.01)
    alone = weights.for_rules_alone(priors, 0.7)
    start = weights.modes.CRITICAL
    lowest = min(priors.first, priors.later)
    assert risk_of(lowest + alone.signals["fil"].nats(0.7)) >= start
    assert risk_of(lowest + alone.signals["fil"].nats(0.6)) < start
    assert risk_of(priors.document + alone.documents["rules"].nats(0.7)) >= start
    assert alone.for_rules_alone(priors, 0.7) == alone


def test_without_the_model_the_rules_block_in_later_turns_too() -> None:
    """A weight that suffices in a first turn may have another scale in a talk."""
    weights = shipped_weights()
    strong = SignalWeight(link="linear", scale=50.0, later=0.1, limit=60.0)
    weights = weights.model_copy(update={"signals": weights.signals | {"fil": strong}})
    priors = weights.priors_for(0.01)
    alone = weights.for_rules_alone(priors, 0.7).signals["fil"]
    for turn, prior in ((1, priors.first), (2, priors.later)):
        assert risk_of(prior + alone.nats(0.7, turn=turn)) >= weights.modes.CRITICAL


@pytest.mark.parametrize(("mode", "start"), [("UNSAFE", 1.0), ("CAUTIOUS", 0.0), ("UNSAFE", 1.2)])
def test_a_mode_begins_between_no_risk_and_certainty(mode: str, start: float) -> None:
    """Neither 0 nor 1 has the log-odds that priors are reckoned from."""
    body = shipped_weights().model_dump()
    body["modes"][mode] = start
    with pytest.raises(ValidationError, match=mode):
        Weights.model_validate(body)


@pytest.mark.parametrize("link", ["linear", "logit"])
def test_evidence_grows_with_the_score_and_is_bounded(link: str) -> None:
    """More risk never counts less, and no score counts more than the limit."""
    weight = SignalWeight(link=link, scale=3.0, limit=2.5)
    nats = [weight.nats(score / 20) for score in range(21)]
    assert nats == sorted(nats)
    assert max(map(abs, nats)) <= 2.5


def test_modes_do_not_flicker() -> None:
    """A mode once entered is kept until the risk is well below its start."""
    modes = shipped_weights().modes
    assert modes.mode_for(0.71) is Mode.CRITICAL
    assert modes.mode_for(0.69, Mode.CRITICAL) is Mode.CRITICAL
    assert modes.mode_for(0.69) is Mode.SUSPECT
    assert modes.mode_for(0.60, Mode.CRITICAL) is Mode.SUSPECT


def test_the_turns_own_range_decides() -> None:
    """Each range gets the strongest action that starts at or below it."""
    policy = PolicyConfig(review_from="SUSPECT")
    expected = [
        Action.ALLOW,
        Action.ANNOTATE,
        Action.STEER,
        Action.REVIEW,
        Action.BLOCK,
        Action.BLOCK,
    ]
    assert [action_for(mode, Mode.SAFE, policy) for mode in Mode] == expected


@pytest.mark.parametrize("session", list(Mode))
def test_a_tainted_session_adds_at_most_steering(session: Mode) -> None:
    """A harmless turn passes, whatever the session has shown."""
    assert action_for(Mode.SAFE, session, PolicyConfig()).severity <= Action.STEER.severity
    unsteered = PolicyConfig(steer_from=None)
    assert action_for(Mode.SAFE, Mode.UNSAFE, unsteered).severity <= Action.ANNOTATE.severity


def test_a_hard_violation_blocks_in_any_range() -> None:
    """The sum does not matter where a hard line is crossed."""
    assert action_for(Mode.SAFE, Mode.SAFE, PolicyConfig(), is_hard=True) is Action.BLOCK


def test_poisoned_content_is_stripped_and_may_be_blocked() -> None:
    """Acting on content is a policy of its own."""
    assert content_action(Mode.CRITICAL, PolicyConfig()) is Action.STRIP
    assert content_action(Mode.SUSPECT, PolicyConfig()) is Action.ALLOW
    assert content_action(Mode.UNSAFE, PolicyConfig(content_action="block")) is Action.BLOCK
    assert content_action(Mode.UNSAFE, PolicyConfig(content_from=None)) is Action.ALLOW


def test_locking_is_off_by_default() -> None:
    """It takes a policy to lock a session: after so many blocks, or at a hard violation."""
    assert not locks(PolicyConfig(), blocked=99, is_hard=True)
    assert locks(PolicyConfig(lock_after_blocks=2), blocked=2, is_hard=False)
    assert not locks(PolicyConfig(lock_after_blocks=2), blocked=1, is_hard=False)
    assert locks(PolicyConfig(lock_on_hard=True), blocked=1, is_hard=True)


def test_an_unknown_mode_in_the_policy_is_refused() -> None:
    """The error lists the modes there are."""
    with pytest.raises(ConfigError, match="CRITICAL"):
        action_for(Mode.SAFE, Mode.SAFE, PolicyConfig(block_from="PANIC"))
