"""Text that others wrote, as a terminal may show it."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Return text in which control characters are spelt out, line breaks and tabs excepted.

    A stored message may hold sequences that move the cursor, hide lines or rename the window.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))
