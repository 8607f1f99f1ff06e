"""Work that never ends by itself, for tests of deadlines and cancellation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from promptguard.computations import checkpoint


class Endless:
    """Computes until it is abandoned; `began` and `ended` say how it goes.

    Called, it is a walk through a session instead.
    """

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    def work(self) -> None:
        self.began.set()
        try:
            while True:
                checkpoint()
                threading.Event().wait(0.001)
        finally:
            self.ended.set()

    def __call__(self, *_: object, **__: object) -> Iterator[Any]:
        self.work()
        yield
