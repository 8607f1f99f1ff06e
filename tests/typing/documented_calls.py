"""The calls that the pages show, for the type checkers; nothing here is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import promptguard
from promptguard import (
    Action,
    AsyncGuard,
    Blocked,
    ContentFinding,
    Controller,
    ControllerConfig,
    ConversationVerdict,
    Guard,
    Message,
    Mode,
    PromptGuard,
    PromptGuardConfig,
    ReplyVerdict,
    Role,
    TurnResult,
    Verdict,
    load_settings,
    with_notice,
    without_withheld,
)

MESSAGES = [
    {"role": "system", "content": "You are a travel agent."},
    {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
]


def guarded(guard: Guard) -> None:
    assert_type(guard.judge("Hello!"), TurnResult)
    assert_type(guard.judge([Message(role=Role.USER, content="Hello!")], "s"), TurnResult)
    result = guard.judge(MESSAGES, session_id="s", system="Be kind.")
    assert_type(result.verdict, Verdict)
    assert_type(result.action, Action)
    assert_type(result.verdict.mode, Mode)
    assert_type(result.raise_if_blocked(), TurnResult)
    assert_type(guard.judge_content("text", task="task", origin="document"), ContentFinding)
    assert_type(guard.judge_reply("Sure.", session_id="s", system="Be kind."), ReplyVerdict)
    assert_type(guard.screen("text", "task"), str)
    assert_type(guard.judge_many([MESSAGES], jobs=2), Iterator[ConversationVerdict])
    cleaned = without_withheld(MESSAGES, result.withheld)
    assert_type(result.notice, str)
    with_notice(cleaned, result.notice)
    assert_type(guard.judge_reply("Su", "s", is_whole=False), ReplyVerdict)


async def awaited(guard: AsyncGuard) -> None:
    assert_type(await guard.judge(MESSAGES, session_id="s"), TurnResult)
    assert_type(await guard.judge_content("text"), ContentFinding)
    assert_type(await guard.judge_reply("Sure."), ReplyVerdict)
    assert_type(guard.judge_many([MESSAGES]), AsyncIterator[ConversationVerdict])


def configured() -> None:
    PromptGuardConfig(models=["ollama/llama3.2"], evaluation_type=["ayni_relational"])
    PromptGuardConfig(models=("local",), evaluation_type="ayni_relational")
    ControllerConfig(preset="strict", signals=["fil"], rules=["rules.toml"])
    Guard(ControllerConfig(store="sqlite:sessions.db"))
    Guard.from_settings("promptguard.yaml")
    AsyncGuard(load_settings().conversation)
    PromptGuard(PromptGuardConfig(models=["local"]))
    Controller(ControllerConfig(store="memory:"))


def refused(guard: Guard) -> str:
    try:
        guard.judge("Hello!").raise_if_blocked()
    except Blocked as blocked:
        return str(blocked.verdict)
    return promptguard.__version__
