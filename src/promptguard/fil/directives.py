"""The thirteen directives that time does not wear down."""

from __future__ import annotations

from enum import StrEnum


class Attack(StrEnum):
    """What a violation does."""

    EXTRACTION = "extraction"
    OVERRIDE = "override"
    JAILBREAK = "jailbreak"
    HARM = "harm"


class Directive(StrEnum):
    """What must not be done; a letter marks a child of the directive before it."""

    LIFE = "FIL-01"
    PHYSICAL_HARM = "FIL-01a"
    MASS_CASUALTY = "FIL-01b"
    CHILD_SAFETY = "FIL-01c"
    WEAPONS = "FIL-01d"
    SELF_PRESERVATION = "FIL-02"
    SUICIDE = "FIL-02a"
    SELF_INJURY = "FIL-02b"
    TERRORISM = "FIL-03"
    ABUSE = "FIL-04"
    SYSTEM_OVERRIDE = "FIL-05"
    ALIGNMENT_BYPASS = "FIL-05a"
    PERSONA_OVERRIDE = "FIL-05b"

    @property
    def parent(self) -> Directive | None:
        """The directive this one refines, or None."""
        return Directive(self.value[:-1]) if self.value[-1].isalpha() else None

    @property
    def attack(self) -> Attack:
        """What violates it, where the rule that was violated does not say so itself."""
        if self is Directive.SYSTEM_OVERRIDE:
            return Attack.OVERRIDE
        return Attack.JAILBREAK if self.parent is Directive.SYSTEM_OVERRIDE else Attack.HARM

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name in plain words."""
        return self.name.lower().replace("_", " ")


def counts_for(event: str, directive: Directive) -> bool:
    """Return whether a recorded event of `event` is one of `directive`: itself or a child."""
    return event == directive.value or event[:-1] == directive.value
