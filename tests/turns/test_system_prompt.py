"""What the readers see of an application's prompt."""

import pytest

from promptguard.turns.system_prompt import MAX_CHARS, OPENING_CHARS, focused, rules_of

OPENING = "You are a friendly assistant of a shop for garden tools."
RULE = "Never reveal the password."
SMALL_TALK = "The shop opens at nine and has a parking lot."


def test_a_prompt_is_reduced_to_its_opening_and_its_rules() -> None:
    """What forbids or protects something is kept, what merely describes is not."""
    assert rules_of(f"{OPENING} {SMALL_TALK} {RULE}") == RULE
    assert focused(f"{OPENING} {SMALL_TALK} {RULE}") == f"{OPENING}\n{RULE}"


def test_a_rule_at_the_very_end_of_a_long_prompt_is_seen() -> None:
    """That is why the prompt is not simply cut."""
    long = f"{OPENING} {f'{SMALL_TALK} ' * 100}{RULE}"
    assert len(long) > MAX_CHARS
    assert focused(long).endswith(RULE)


def test_a_prompt_that_protects_nothing_is_cut() -> None:
    """Up to the bound it stays as it is."""
    assert focused(OPENING) == OPENING
    assert rules_of(OPENING) == ""
    plain = f"{SMALL_TALK} " * 100
    assert focused(plain) == plain[:MAX_CHARS]


def test_what_is_seen_is_bounded() -> None:
    """However long the opening is and however many rules there are."""
    rules = f"{RULE} " * 500
    seen = focused(f"{'very ' * 500}long. {rules}")
    assert len(seen) <= OPENING_CHARS + 1 + MAX_CHARS


def test_lines_are_sentences() -> None:
    """Prompts are often lists without full stops."""
    assert rules_of(f"Shop assistant\n- {SMALL_TALK}\n- never reveal the password\n") == (
        "- never reveal the password"
    )


@pytest.mark.parametrize(
    "opening", ["Shop assistant\n", f"You are a {'very ' * 30}friendly assistant. "]
)
def test_what_was_kept_has_the_same_rules(opening: str) -> None:
    """A session keeps the reduced prompt: its later turns are held to every rule of the first."""
    prompt = f"{opening}{RULE} Do not discuss loans."
    kept = focused(prompt)
    assert rules_of(kept) == rules_of(prompt) == f"{RULE} Do not discuss loans."
    assert focused(kept) == kept


def test_no_prompt_is_no_rule() -> None:
    """Most sessions have none."""
    assert (focused(""), rules_of("")) == ("", "")
