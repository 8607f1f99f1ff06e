"""The servers that `benchmarks.gateway` asks, each in a process of its own on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_UPSTREAM = """
import json, sys
import uvicorn
BODY = json.dumps({
    "id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "A vegetable soup is good."}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17},
}).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets=sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"listens on http://127.0.0.1:{port}", flush=True)
Server(uvicorn.Config(app, port=0, lifespan="off", log_level="error")).run()
"""
_LITELLM = "from litellm import run_server; run_server()"
_ADDRESS = re.compile(r"(?:listens|running) on (http://\S+)")
_TAIL_LINES = 15


@contextmanager
def running_upstream() -> Iterator[str]:
    """Run a model that answers at once, always the same; gives its address."""
    with _running([sys.executable, "-c", _UPSTREAM]) as base:
        yield base


@contextmanager
def running_guard(
    upstream: str,
    folder: Path,
    *,
    store: str | None = None,
    use_model: bool = True,
    service: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """Run the guard before the upstream; gives its address. `service` are further settings."""
    config = folder / "guard.yaml"
    config.write_text(
        json.dumps(  # JSON is YAML
            {
                "conversation": {
                    "store": store or f"sqlite:{folder}/bench.db",
                    "use_model": use_model,
                },
                "service": {
                    "port": 0,
                    "upstream": f"{upstream}/v1",
                    "dashboard": False,
                    "demo": False,
                    "log_level": "warning",
                    "threads": os.cpu_count() or 1,
                    **(service or {}),
                },
            }
        )
    )
    command = [sys.executable, "-m", "promptguard", "serve", "--config", str(config)]
    with _running(command) as base:
        yield base


@contextmanager
def running_litellm(python: Path, upstream: str, folder: Path) -> Iterator[str]:
    """Run LiteLLM's proxy before the upstream; gives its address.

    One process, no guardrail, no key, no database, no line logged per request: as cheap as it
    gets. `LITELLM_LOCAL_MODEL_COST_MAP` keeps it from fetching its price list.
    """
    config, logs = folder / "litellm.yaml", folder / "logs.json"
    parameters = {"model": "openai/bench", "api_base": f"{upstream}/v1", "api_key": "none"}
    config.write_text(
        json.dumps(
            {
                "model_list": [{"model_name": "bench", "litellm_params": parameters}],
                "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
            }
        )
    )
    logs.write_text(json.dumps(_quiet_logs()))
    options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(_free_port())]
    command = [str(python), "-c", _LITELLM, *options, "--log_config", str(logs)]
    env = {
        # Nothing else of our environment reaches it, such as proxies or keys.
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }
    with _running(command, env=env, folder=folder) as base:
        yield base


def litellm_python(place: Path) -> Path:
    """Return the interpreter that `place`, itself one or a virtual environment, means."""
    found = next((each for each in (place, place / "bin/python") if each.is_file()), None)
    if found is None:
        raise SystemExit(f"{place} is neither a Python nor a virtual environment.")
    return found.absolute()


def litellm_version(python: Path) -> str:
    """Return the version installed there; ends the program where there is none."""
    asks = "from importlib.metadata import version; print(version('litellm'))"
    done = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} has no LiteLLM: {python} -m pip install 'litellm[proxy]'")
    return done.stdout.strip()


def _quiet_logs() -> dict[str, object]:
    """Return a log configuration that says where the server listens, and nothing per request."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}},
        "loggers": {
            "uvicorn.error": {"level": "INFO", "handlers": ["out"]},
            "uvicorn.access": {"level": "WARNING"},
        },
    }


def _free_port() -> int:
    with socket.socket() as probe:
        # LiteLLM does not say which port the system chose, so that one is looked for before.
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    command: list[str], *, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[str]:
    """Run a server that says where it listens; gives its address."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=folder
    )
    try:
        base = _address(process, command)
        # What it says later must not fill the pipe and stop it.
        threading.Thread(target=_drain, args=(process,), daemon=True).start()
        yield base
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str], command: list[str]) -> str:
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    for line in process.stdout:
        if match := _ADDRESS.search(line):
            return match[1]
        # Kept to say why a server did not start.
        tail.append(line)
    raise SystemExit(f"The server did not start: {' '.join(command[:3])} ...\n{''.join(tail)}")


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for _ in process.stdout:
        pass
