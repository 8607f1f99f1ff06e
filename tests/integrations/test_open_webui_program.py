"""The filter inside the running program: pasted over its API, and asked as its pages ask."""

from __future__ import annotations

import importlib.util
import inspect
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

if importlib.util.find_spec("open_webui") is None:  # importing it would start it
    pytest.skip("pinned in requirements/integrations-open-webui.txt", allow_module_level=True)

from live_server import live_upstream
from spoken import ATTACK, CLEAN, HARMLESS, POISONED, THANKS
from stub_upstream import StubUpstream

import promptguard
from promptguard.config import ControllerConfig
from promptguard.integrations import open_webui
from promptguard.risk.ledger import STEERING, STRIPPED

REFUSAL = ControllerConfig().refusal
STEPS = "Step 1: take 20 g. Step 2: heat to 90 C. Step 3: wait.\n```sh\nrun\n```"
TOOL = f'''
class Tools:
    def weather(self, city: str) -> str:
        """
        Look up the weather.
        :param city: the city
        """
        return {POISONED!r}
'''
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Lisbon"}'},
        }
    ],
}


SWITCHES = {
    "WEBUI_SECRET_KEY": "test",
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "RAG_EMBEDDING_ENGINE": "openai",
    "ENABLE_OLLAMA_API": "false",
    "OPENAI_API_KEYS": "none",
    "DEFAULT_USER_ROLE": "user",
    "BYPASS_MODEL_ACCESS_CONTROL": "true",
    "ANONYMIZED_TELEMETRY": "false",
    "PYTHONPATH": str(Path(promptguard.__file__).parents[1]),
}


class Program:
    """A running Open WebUI with its first user signed in, before a stand-in for a model."""

    def __init__(self, url: str, upstream: StubUpstream) -> None:
        self.upstream = upstream
        self._http = httpx.Client(base_url=url, timeout=60)
        self._go_on_as(self.post("/api/v1/auths/signup", account("admin"))["token"])

    def _go_on_as(self, token: str) -> None:
        self._http.headers["authorization"] = f"Bearer {token}"

    @contextmanager
    def as_user(self, name: str) -> Iterator[None]:
        """Be another user for the block."""
        own = self._http.headers["authorization"]
        added = self.post("/api/v1/auths/add", {**account(name), "role": "user"})
        self._go_on_as(added["token"])
        yield
        self._http.headers["authorization"] = own

    def post(self, path: str, body: object = None) -> Any:
        """Send a body and return the answer's."""
        answer = self._http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self) -> Chat:
        """Begin a chat."""
        return Chat(self)

    def message(self, chat_id: str, message_id: str) -> dict[str, Any]:
        """Return a message as it is stored and shown."""
        chat = self._http.get(f"/api/v1/chats/{chat_id}").json()
        return dict(chat["chat"]["history"]["messages"][message_id])

    def complete(self, text: str) -> httpx.Response:
        """Ask over the API, without a stored chat."""
        body = {"model": "stub-model", "messages": [{"role": "user", "content": text}]}
        return self._http.post("/api/chat/completions", json=body)


def account(name: str) -> dict[str, str]:
    return {"name": name, "email": f"{name}@example.com", "password": "a-long-Passw0rd"}


class Chat:
    """One chat, asked as the program's page does."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._id: str | None = None
        self._last: str | None = None

    def ask(self, text: str, **more: Any) -> dict[str, Any]:
        """Ask and return the answer's message once it is done."""
        question, answer = str(uuid.uuid4()), str(uuid.uuid4())
        said = {
            "id": question,
            "parentId": self._last,
            "role": "user",
            "content": text,
            "models": ["stub-model"],
        }
        body = {
            "model": "stub-model",
            "messages": [{"role": "user", "content": text}],
            "stream": True,
            "session_id": "page",
            "id": answer,
            "parent_id": self._last,
            "user_message": said,
            **({"chat_id": self._id} if self._id else {}),
            **more,
        }
        begun = self._program.post("/api/chat/completions", body)
        self._id, self._last = begun["chat_id"], answer
        until(lambda: self.last().get("done"))
        return self.last()

    def last(self) -> dict[str, Any]:
        """Return the last answer as it is stored and shown now."""
        assert self._id, "ask first"
        assert self._last
        return self._program.message(self._id, self._last)


def until(ready: Callable[[], Any], *, limit_s: float = 30) -> Any:
    """Return what `ready` gives once it gives something."""
    end = time.monotonic() + limit_s
    while not (found := ready()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.1)
    return found


def shown(message: dict[str, Any]) -> str:
    """The text of an answer, wherever the program keeps it."""
    parts = [p for item in message.get("output") or () for p in item.get("content") or ()]
    return str(message.get("content") or "".join(p.get("text", "") for p in parts))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Open WebUI with the filter switched on for every model."""
    folder = tmp_path_factory.mktemp("open-webui")
    upstream = StubUpstream()
    with live_upstream(upstream) as base, running(folder, f"{base}/v1") as url:
        program = Program(url, upstream)
        filter_form = {
            "id": "promptguard",
            "name": "promptguard",
            "content": inspect.getsource(open_webui),
            "meta": {"description": "guard"},
        }
        made = program.post("/api/v1/functions/create", filter_form)
        assert made["type"] == "filter"
        assert made["meta"]["manifest"]["requirements"] == "ayniguard"
        program.post("/api/v1/functions/id/promptguard/toggle")
        program.post("/api/v1/functions/id/promptguard/toggle/global")
        tool_form = {"id": "weather", "name": "weather", "content": TOOL, "meta": {}}
        program.post("/api/v1/tools/create", tool_form)
        yield program


@contextmanager
def running(folder: Path, upstream: str) -> Iterator[str]:
    """Run the program in a process of its own, with everything that fetches switched off."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "open-webui"), "serve", "--host", "127.0.0.1"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            env=os.environ | SWITCHES | {"DATA_DIR": str(folder), "OPENAI_API_BASE_URLS": upstream},
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: process.poll() is not None or is_up(url), limit_s=300)
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        yield url
    finally:
        process.terminate()
        process.wait(60)


def is_up(url: str) -> bool:
    """Whether the program answers."""
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_a_harmless_chat_goes_on(program: Program) -> None:
    """Over several turns, with what was said before."""
    program.upstream.answers("Sunny.", "A light coat.")
    chat = program.chat()
    assert shown(chat.ask(HARMLESS)) == "Sunny."
    assert shown(chat.ask(THANKS)) == "A light coat."
    said = [m["content"] for m in program.upstream.requests[-1]["messages"]]
    assert said == [HARMLESS, "Sunny.", THANKS]


def test_an_attack_is_an_error_and_the_chat_goes_on(program: Program) -> None:
    """The refusal is shown, nothing reaches the model, and it is told to take care afterwards."""
    program.upstream.answers("Sunny.")
    before = program.upstream.calls
    chat = program.chat()
    answer = chat.ask(ATTACK)
    assert answer["error"]["content"] == REFUSAL
    assert program.upstream.calls == before
    assert shown(chat.ask(HARMLESS)) == "Sunny."
    reached = program.upstream.requests[-1]["messages"]
    assert STEERING in reached[0]["content"]
    assert ATTACK not in str(reached)


def test_an_attack_over_the_api_is_refused(program: Program) -> None:
    """As a bad request with the refusal in it."""
    answer = program.complete(ATTACK)
    assert answer.status_code == 400
    assert REFUSAL in answer.text


def test_a_poisoned_result_of_a_tool_never_reaches_the_model(program: Program) -> None:
    """Neither right after the call nor with the next question."""
    program.upstream.answers(CALL, "Sunny.", "A light coat.")
    chat = program.chat()
    assert shown(chat.ask(HARMLESS, tool_ids=["weather"])).endswith("Sunny.")
    results = [m for m in program.upstream.requests[-1]["messages"] if m["role"] == "tool"]
    assert [m["content"] for m in results] == [STRIPPED]
    assert shown(chat.ask(THANKS)) == "A light coat."
    assert "collector@evil.example" not in str(program.upstream.requests[-1])


def test_a_poisoned_document_never_reaches_the_model(program: Program) -> None:
    """An attached one, which the program writes into the question; the clean one beside it does."""
    program.upstream.answers("Sunny.")
    attached = [
        {"type": "text", "name": name, "content": text, "context": "full"}
        for name, text in (("bad", POISONED), ("good", CLEAN))
    ]
    assert shown(program.chat().ask(HARMLESS, files=attached)) == "Sunny."
    reached = str(program.upstream.requests[-1]["messages"])
    assert "collector@evil.example" not in reached
    assert STRIPPED in reached
    assert CLEAN in reached
    assert HARMLESS in reached


def test_a_bad_answer_is_replaced_where_it_is_kept(program: Program) -> None:
    """Operational detail in a chat that has shown an attack; the model does not see it again."""
    program.upstream.answers(STEPS, "Sunny.")
    chat = program.chat()
    chat.ask(ATTACK)
    chat.ask(HARMLESS)
    assert until(lambda: shown(chat.last()) == REFUSAL)
    chat.ask(THANKS)
    assert "20 g" not in str(program.upstream.requests[-1])


def test_valves_are_followed(program: Program) -> None:
    """Set as the administrator sets them."""
    path = "/api/v1/functions/id/promptguard/valves/update"
    program.post(path, {"detect_only": True})
    try:
        program.upstream.answers("Certainly.")
        assert shown(program.chat().ask(ATTACK)) == "Certainly."
    finally:
        program.post(path, {"detect_only": False})
    assert program.chat().ask(ATTACK)["error"]["content"] == REFUSAL


def test_two_users_do_not_share_a_session(program: Program) -> None:
    """One's attack does not steer the other's chat."""
    program.chat().ask(ATTACK)
    program.upstream.answers("Sunny.")
    with program.as_user("another"):
        assert shown(program.chat().ask(HARMLESS)) == "Sunny."
    assert STEERING not in str(program.upstream.requests[-1])
