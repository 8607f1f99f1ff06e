"""What a terminal shows: text that others wrote, and progress on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Return text in which control characters are spelt out, line breaks and tabs excepted.

    A stored message may hold sequences that move the cursor, hide lines or rename the window.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar; the function given takes how many of `total` are done."""
    from rich.console import Console
    from rich.progress import Progress

    # Standard output may be data for another program, and a log file needs no bar.
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def describing() -> Iterator[Callable[[str], None]]:
    """Show a spinner where the total is unknown; the function given takes what to say."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("opening")
        yield lambda text: bar.update(task, description=text)
