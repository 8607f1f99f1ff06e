"""One exported network: token windows in, raw logits and vectors out."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from promptguard.cancellation import checkpoint
from promptguard.errors import ModelError
from promptguard.model.cutting import Window
from promptguard.model.packing import read_packed
from promptguard.vector import Vector

Floats = npt.NDArray[np.float32]
# The windows of a turn are asked for again when the thorough reader joins in, and a short first
# turn is its own conversation window.
REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLogits:
    """What a network says of one window: raw logits of every head, and a unit vector."""

    message: Floats
    context: Floats
    document: float
    vector: Vector


class Network:
    """An ONNX session with a short memory. Loads on first use; safe to share between threads."""

    def __init__(
        self,
        locate: Callable[[], Path],
        *,
        weights: Callable[[], Path] | None = None,
        threads: int = 1,
    ) -> None:
        """`locate` returns the checked file; it is called when the network is first needed.

        `weights` does the same for packed weights that are kept beside the graph.
        """
        self._locate = locate
        self._weights = weights
        self._threads = threads
        self._lock = threading.Lock()
        self._session: Any = None
        self._memory = threading.local()

    def run(self, windows: Sequence[Window]) -> list[WindowLogits]:
        """Return the logits of each window.

        One window a run: int8 activations are scaled over the whole batch, so that neighbours and
        padding would change a window's result, and padding short windows costs more than it saves.
        """
        return [self._one(window) for window in windows]

    def _one(self, window: Window) -> WindowLogits:
        memory: OrderedDict[tuple[tuple[int, ...], tuple[int, ...]], WindowLogits]
        memory = getattr(self._memory, "windows", None) or OrderedDict()
        self._memory.windows = memory
        key = (tuple(window[0]), tuple(window[1]))
        known = memory.get(key)
        if known is None:
            checkpoint()
            known = self._outputs(window)
            memory[key] = known
            if len(memory) > REMEMBERED:
                memory.popitem(last=False)
        return known

    def _outputs(self, window: Window) -> WindowLogits:
        ids = np.asarray([window[0]], dtype=np.int64)
        inputs = {
            "ids": ids,
            "speakers": np.asarray([window[1]], dtype=np.int64),
            "mask": np.ones_like(ids),
        }
        message, context, document, vector = self._load().run(None, inputs)
        return WindowLogits(
            message=message[0], context=context[0], document=float(document[0, 0]), vector=vector[0]
        )

    def _load(self) -> Any:
        if self._session is None:
            with self._lock:
                if self._session is None:
                    packed = None if self._weights is None else self._weights()
                    self._session = _open(self._locate(), packed, self._threads)
        return self._session


def _open(path: Path, packed: Path | None, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    weights = {} if packed is None else read_packed(packed)
    try:
        # Copied by the session; they need to live only until it is made.
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the library raises its own, undocumented types
        raise ModelError(
            f"The embedded model does not load ({type(error).__name__}); "
            "run `promptguard model verify`."
        ) from None
    del weights, values
    if packed is not None:
        _give_memory_back()
    return session


def _give_memory_back() -> None:
    """Return freed memory to the system, where the C library can: unpacking leaves 80 MB behind."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
