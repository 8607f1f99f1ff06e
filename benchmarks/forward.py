"""What a reading costs over the bare forward: `python -m benchmarks.forward`, part of `make bench`.

For messages of 32, 64 and 128 tokens: onnxruntime alone on the window, and a whole reading of the
text (tokens, window, forward, word pairs, calibration), in turns, one thread, medians; then the
same reading with the thorough reader asked, and how many times as long it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

import numpy as np
import onnxruntime

from promptguard.model.artifact import bundled
from promptguard.model.readers import Readers

LENGTHS = (32, 64, 128)
REPEATS, DEEP_REPEATS = 150, 15
FRAME = 2  # the tokens that open and close a window
# Words of one token each. More texts take turns than the readers remember windows of.
WORDS = ("bread", "water", "salt", "milk", "house", "table", "river", "stone", "green", "black")


def main() -> None:
    """Measure and print."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = str(bundled().folder / "quick.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    readers = Readers()
    names = ("bare ms", "reading ms", "bare / reading", "both ms", "both / reading")
    print(f"{'tokens':>8} " + " ".join(f"{name:>15}" for name in names))
    for length in LENGTHS:
        texts = [
            " ".join([first, *["and"] * (length - FRAME - 2), last])
            for first, last in product(WORDS, repeat=2)
        ]
        ids = np.full((1, length), 1998, dtype=np.int64)
        inputs = {"ids": ids, "speakers": np.zeros_like(ids), "mask": np.ones_like(ids)}
        bare, whole = [], []
        for number in range(REPEATS):
            # In turns, so that what else the machine does hits both alike.
            bare.append(timed(partial(session.run, None, inputs)))
            whole.append(timed(partial(readers.read_messages, [texts[number % len(texts)]])))
        deep = [
            timed(partial(readers.read_messages, [text], thorough=True))
            for text in texts[:DEEP_REPEATS]
        ]
        alone, reading, both = median(bare), median(whole), median(deep)
        values = (alone, reading, alone / reading, both, both / reading)
        print(f"{length:>8} " + " ".join(f"{value:>15.2f}" for value in values))


def timed(work: Callable[[], object]) -> float:
    """Return how many milliseconds it took."""
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
