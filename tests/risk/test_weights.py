"""The weights file is checked, and budgets become priors."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptguard.config import PolicyConfig
from promptguard.errors import ConfigError
from promptguard.risk.ledger import risk_of
from promptguard.risk.modes import mode_for
from promptguard.risk.policy import action_for
from promptguard.risk.weights import load_weights, shipped_weights
from promptguard.state import Action, Mode


def test_a_smaller_budget_takes_more_evidence() -> None:
    """Allowing fewer false alarms lowers the prior."""
    weights = shipped_weights()
    assert weights.prior_for(0.002) <= weights.prior_for(0.01) <= weights.prior_for(0.05)


def test_no_promise_beyond_the_fitted_range() -> None:
    """Budgets outside the fitted points take the nearest point."""
    weights = shipped_weights()
    assert weights.prior_for(1e-9) == weights.budgets[0].prior
    assert weights.prior_for(0.5) == weights.budgets[-1].prior


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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(ConfigError, match="nowhere"):
        load_weights(tmp_path / "nowhere.toml")


def test_without_the_model_the_rules_block_by_themselves() -> None:
    """From the score at which the rules block, their evidence alone reaches the blocking mode."""
    weights = shipped_weights()
    prior = weights.prior_for(0.01)
    alone = weights.for_rules_alone(prior, 0.7)
    start = weights.modes.CRITICAL
    assert risk_of(alone.signals["fil"].nats(0.7), prior) >= start
    assert risk_of(alone.signals["fil"].nats(0.6), prior) < start
    assert alone.for_rules_alone(prior, 0.7) == alone
    rest = {name: weight for name, weight in weights.signals.items() if name != "fil"}
    bare = weights.model_copy(update={"signals": rest})
    assert bare.for_rules_alone(prior, 0.7) == bare


def test_modes_do_not_flicker() -> None:
    """A mode once entered is kept until the risk is well below its start."""
    modes = shipped_weights().modes
    assert mode_for(0.71, modes) is Mode.CRITICAL
    assert mode_for(0.69, modes, Mode.CRITICAL) is Mode.CRITICAL
    assert mode_for(0.69, modes) is Mode.SUSPECT
    assert mode_for(0.60, modes, Mode.CRITICAL) is Mode.SUSPECT


def test_the_strongest_action_wins() -> None:
    """Each mode gets the strongest action that starts at or below it."""
    policy = PolicyConfig(review_from="SUSPECT")
    expected = [
        Action.ALLOW,
        Action.ANNOTATE,
        Action.STEER,
        Action.REVIEW,
        Action.BLOCK,
        Action.BLOCK,
    ]
    assert [action_for(mode, policy) for mode in Mode] == expected


def test_a_hard_violation_blocks_in_any_mode() -> None:
    """The sum does not matter where a hard line is crossed."""
    assert action_for(Mode.SAFE, PolicyConfig(), is_hard=True) is Action.BLOCK


def test_an_unknown_mode_in_the_policy_is_refused() -> None:
    """The error lists the modes there are."""
    with pytest.raises(ConfigError, match="CRITICAL"):
        action_for(Mode.SAFE, PolicyConfig(block_from="PANIC"))
