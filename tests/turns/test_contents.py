"""What of the contents beside a conversation is still to be judged."""

from __future__ import annotations

from promptguard.conversation import ComparableMessage, Role
from promptguard.turns.contents import HarmlessContents
from promptguard.verdict import Action, ContentFinding, Verdict

TOOL = ComparableMessage.of(Role.TOOL, "Tells the weather.", origin="tools[0]")
FOUND = ContentFinding(index=0, origin="tools[0]", risk=0.1, action=Action.ALLOW)
VERDICT = Verdict(turn=1, action=Action.ALLOW, content=(FOUND,))


def test_what_was_harmless_is_not_judged_again() -> None:
    """By this judge, for this tenant."""
    contents, judge = HarmlessContents(), object()
    assert contents.others("a", (TOOL,), judge) == (TOOL,)
    contents.learn("a", (TOOL,), VERDICT, judge)
    assert contents.others("a", (TOOL,), judge) == ()
    assert contents.others("b", (TOOL,), judge) == (TOOL,)


def test_what_a_judge_found_who_was_replaced_meanwhile_says_nothing() -> None:
    """Its turn began before a reload and ended after it."""
    contents, old, new = HarmlessContents(), object(), object()
    contents.others("a", (TOOL,), old)
    contents.others("a", (TOOL,), new)
    contents.learn("a", (TOOL,), VERDICT, old)
    assert contents.others("a", (TOOL,), new) == (TOOL,)
