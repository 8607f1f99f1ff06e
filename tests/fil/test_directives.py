"""The thirteen directives and their family."""

from __future__ import annotations

from promptguard.fil.directives import Directive, counts_for


def test_there_are_thirteen_and_children_know_their_parent() -> None:
    """A letter marks a child; parents have none themselves."""
    assert len(Directive) == 13
    assert Directive("FIL-01b").parent is Directive.LIFE
    assert Directive.SUICIDE.parent is Directive.SELF_PRESERVATION
    assert Directive.TERRORISM.parent is None
    assert Directive.ALIGNMENT_BYPASS.title == "alignment bypass"


def test_a_childs_event_counts_for_the_parent_only() -> None:
    """What happened to a child happened to its parent, never the other way round."""
    assert counts_for("FIL-01a", Directive.LIFE)
    assert counts_for("FIL-01", Directive.LIFE)
    assert not counts_for("FIL-01", Directive.PHYSICAL_HARM)
    assert not counts_for("FIL-02a", Directive.LIFE)
