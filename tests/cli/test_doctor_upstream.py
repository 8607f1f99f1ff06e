"""`promptguard doctor` on the language model behind the gateway: reached or not, and what to do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from promptguard.cli import cli, upstream

KEY = "sk-not-to-be-seen"
MODELS = json.dumps({"object": "list", "data": [{"id": "a"}, {"id": "b"}]}).encode()


@dataclass
class Stub:
    """Answers every request alike and remembers path and key of each."""

    base_url: str = ""
    status: int = 200
    body: bytes = MODELS
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A server on loopback."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.asked.append((self.path, self.headers["authorization"]))
            self.send_response(stub.status)
            self.send_header("content-length", str(len(stub.body)))
            self.end_headers()
            self.wfile.write(stub.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield stub
        server.shutdown()
        thread.join()


def doctor(tmp_path: Path, service: str, **env: str) -> Result:
    """Examine with this service section, and with neither model nor store worth a look."""
    path = tmp_path / "promptguard.yaml"
    path.write_text(
        "evaluation: {models: ['recorded:none.json']}\n"
        "conversation: {store: 'memory:', use_model: false}\n"
        f"service: {service}\n"
    )
    return CliRunner().invoke(cli, ["doctor", "--config", str(path)], env=env)


@pytest.fixture(autouse=True)
def _no_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration's own check is not the subject here."""
    monkeypatch.setattr(
        "promptguard.cli.doctor._examine_settings", lambda settings: "not looked at"
    )


def line(done: Result) -> str:
    """Return what was said about the upstream."""
    return next(line for line in done.output.splitlines() if " upstream: " in line)


def test_an_upstream_that_is_not_set_is_only_mentioned(tmp_path: Path) -> None:
    """The usual one may well be absent; nothing is called and nothing is broken."""
    done = doctor(tmp_path, "{port: 8787}")
    assert done.exit_code == 0, done.output
    assert line(done).startswith("info")
    assert "ollama" in line(done)
    assert "not called" in line(done)


def test_a_reachable_upstream_is_well(tmp_path: Path, stub: Stub) -> None:
    """Its models are counted; they are all that is asked for, once."""
    done = doctor(tmp_path, f"{{upstream: '{stub.base_url}'}}")
    assert done.exit_code == 0, done.output
    assert line(done).startswith("ok ")
    assert line(done).endswith("answers, 2 models offered")
    assert stub.asked == [("/v1/models", None)]


@pytest.mark.parametrize(
    ("body", "count"),
    [(b'{"data": null}', "0 models"), (b'[{"id": "a"}]', "1 model "), (b'{"data": []}', "0 mod")],
)
def test_the_ways_to_list_models_are_understood(
    tmp_path: Path, stub: Stub, body: bytes, count: str
) -> None:
    """A bare list, and none at all."""
    stub.body = body
    done = doctor(tmp_path, f"{{upstream: '{stub.base_url}'}}")
    assert done.exit_code == 0, done.output
    assert count in line(done)


def test_a_key_is_sent_and_never_shown(tmp_path: Path, stub: Stub) -> None:
    """A wrong one is named by its variable."""
    service = f"{{upstream: '{stub.base_url}', upstream_key_env: STUB_KEY}}"
    good = doctor(tmp_path, service, STUB_KEY=KEY)
    assert good.exit_code == 0, good.output
    assert stub.asked == [("/v1/models", f"Bearer {KEY}")]
    stub.status = 401
    wrong = doctor(tmp_path, service, STUB_KEY=KEY)
    assert wrong.exit_code == 3
    assert "broken" in line(wrong)
    assert "check the key in STUB_KEY" in line(wrong)
    assert KEY not in good.output + wrong.output


def test_a_key_that_is_missing_is_told(tmp_path: Path, stub: Stub) -> None:
    """Where its variable is named, nothing is called without it."""
    service = f"{{upstream: '{stub.base_url}', upstream_key_env: STUB_KEY}}"
    done = doctor(tmp_path, service, STUB_KEY="")
    assert done.exit_code == 3
    assert "set STUB_KEY" in line(done)
    assert not stub.asked


def test_an_upstream_may_want_the_clients_keys(tmp_path: Path, stub: Stub) -> None:
    """Without keys of the guard's own the clients' are passed on; with them nobody has one."""
    stub.status = 401
    passed = doctor(tmp_path, f"{{upstream: '{stub.base_url}'}}")
    assert passed.exit_code == 0, passed.output
    assert "wants a key" in line(passed)
    assert "upstream_key_env" in line(passed)
    keys = f"[{{name: app, sha256: {'ab' * 32}}}]"
    kept = doctor(tmp_path, f"{{upstream: '{stub.base_url}', keys: {keys}}}")
    assert kept.exit_code == 3
    assert "upstream_key_env" in line(kept)


def test_a_provider_without_its_key_is_not_called(tmp_path: Path) -> None:
    """The clients may have one each; the variable for a common one is named."""
    done = doctor(tmp_path, "{upstream: openai}", OPENAI_API_KEY="")
    assert done.exit_code == 0, done.output
    assert "not called: set OPENAI_API_KEY" in line(done)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>Welcome</html>", "not answer in JSON"),
        (200, b'{"hello": "world"}', "not a list of models"),
        (200, b'"data"', "not a list of models"),
        (404, b"", "status 404"),
        (405, b"", "status 405"),
    ],
)
def test_an_answer_of_something_else_is_recognised(
    tmp_path: Path, stub: Stub, status: int, body: bytes, said: str
) -> None:
    """The advice is to look at the address."""
    stub.status, stub.body = status, body
    done = doctor(tmp_path, f"{{upstream: '{stub.base_url}'}}")
    assert done.exit_code == 3
    assert said in line(done)
    assert "usually in /v1" in line(done)
    assert "Welcome" not in done.output


@pytest.mark.parametrize(
    ("status", "advice"), [(302, "redirects"), (429, "wait"), (500, "try again later")]
)
def test_trouble_of_the_upstream_is_told(
    tmp_path: Path, stub: Stub, status: int, advice: str
) -> None:
    """Once: a doctor does not try again."""
    stub.status = status
    done = doctor(tmp_path, f"{{upstream: '{stub.base_url}'}}")
    assert done.exit_code == 3
    assert f"status {status}" in line(done)
    assert advice in line(done)
    assert len(stub.asked) == 1


@contextmanager
def port(*, listens: bool) -> Iterator[str]:
    """A port on which nobody answers, or nobody even listens."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        if listens:
            held.listen()
        yield f"http://127.0.0.1:{held.getsockname()[1]}/v1"


def test_a_refused_connection_is_told(tmp_path: Path) -> None:
    """The address is what to check."""
    with port(listens=False) as address:
        done = doctor(tmp_path, f"{{upstream: '{address}'}}")
    assert done.exit_code == 3
    assert "cannot be reached; check the address" in line(done)


def test_a_silent_upstream_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a short while, not after the gateway's patience."""
    monkeypatch.setattr(upstream, "TIMEOUT_S", 0.05)
    with port(listens=True) as address:
        done = doctor(tmp_path, f"{{upstream: '{address}'}}")
    assert done.exit_code == 3
    assert "did not answer within 0.05 s" in line(done)


def test_an_upstream_nobody_knows_is_told(tmp_path: Path) -> None:
    """A name that is neither a provider nor an address."""
    done = doctor(tmp_path, "{upstream: nonesuch}")
    assert done.exit_code == 3
    assert line(done).startswith("broken")
