"""
title: promptguard
description: A filter for Open WebUI; paste this file into Admin Panel → Functions.
requirements: ayniguard
"""  # Open WebUI reads these lines, which must begin after a line with nothing but the quotes.

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from promptguard import AsyncGuard, ControllerConfig, with_notice, without_withheld

# Retrieved documents stand in the question or the system prompt, each in a tag, the first at the
# beginning of a line.
FIRST_SOURCE = re.compile(r"^<source id=", re.MULTILINE)
CLOSING_TAG = "</source>"
# Each document is judged by itself: one poisoned must not take the others with it.
NEXT_SOURCE = re.compile(r"(?<=</source>)(?=\s*<source\b)")
OPENING_TAG = re.compile(r"\s*<source\b[^>]*>")


class Filter:
    """Judges every chat: `inlet` a question, `request` what tools bring, `outlet` the answer.

    A blocked turn is an error that shows the refusal. The session is the user's chat.
    """

    class Valves(BaseModel):
        """What the administrator may set."""

        preset: str = "balanced"
        detect_only: bool = False
        store: str = "memory:"

    def __init__(self) -> None:
        self.valves = self.Valves()
        self._guard: AsyncGuard | None = None
        self._opened_with: Filter.Valves | None = None

    async def inlet(
        self,
        body: dict[str, Any],
        __user__: Mapping[str, Any] | None = None,
        __metadata__: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Judge the chat; raises where it is blocked, strips poisoned tool results, and steers."""
        guard = self._opened()
        session = _session(__user__, __metadata__)
        # Open WebUI keeps a blocked question in the chat and sends it with the next one.
        messages = _answered(body["messages"]) if session else body["messages"]
        result = await guard.judge(messages, session)
        if result.is_blocked:
            # An error is how a filter stops a chat; its text is shown to the user.
            raise ValueError(guard.config.refusal)
        cleaned = without_withheld(messages, result.withheld)
        return {**body, "messages": with_notice(cleaned, result.notice)}

    async def request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Replace poisoned tool results and documents that came after the question.

        Open WebUI calls this before each call of the model, and keeps what it had itself.
        """
        messages = body["messages"]
        # Earlier messages were judged with the turns that brought them.
        asked = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
        # The user's own words, without the documents that were written into them.
        task = _without_sources(_text(messages[asked].get("content"))) if messages else ""
        screened = [
            await self._screened(message, task)
            if i >= asked or message["role"] == "system"
            else message
            for i, message in enumerate(messages)
        ]
        return {**body, "messages": screened}

    async def outlet(
        self,
        body: dict[str, Any],
        __user__: Mapping[str, Any] | None = None,
        __metadata__: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Judge the answer; it is replaced where it must not be shown."""
        guard = self._opened()
        messages = body.get("messages") or []
        if not messages or messages[-1].get("role") != "assistant":
            return body
        text = _text(messages[-1].get("content"))
        verdict = await guard.judge_reply(text, _session(__user__, __metadata__))
        if not verdict.is_blocked:
            return body
        refused = _refused(messages[-1], guard.config.refusal)
        return {**body, "messages": [*messages[:-1], refused]}

    async def _screened(self, message: dict[str, Any], task: str) -> dict[str, Any]:
        if message["role"] == "assistant":
            return message
        screen = self._tool_result if message["role"] == "tool" else self._documents
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": await screen(content, task)}
        parts = [
            {**part, "text": await screen(part["text"], task)} if part.get("text") else part
            for part in content or ()
        ]
        return {**message, "content": parts or content}

    async def _tool_result(self, text: str, task: str) -> str:
        return await self._opened().screen(text, task)

    async def _documents(self, text: str, task: str) -> str:
        start, end = _sources_in(text)
        if start == end:
            return text
        kept = [await self._document(one, task) for one in NEXT_SOURCE.split(text[start:end])]
        return text[:start] + "".join(kept) + text[end:]

    async def _document(self, text: str, task: str) -> str:
        tag = OPENING_TAG.match(text)
        opening = tag.group() if tag else ""
        inner = text[len(opening) :].removesuffix(CLOSING_TAG)
        return f"{opening}{await self._opened().screen(inner, task, 'document')}</source>"

    def _opened(self) -> AsyncGuard:
        # An administrator may change the valves at any time, and no hook tells of it.
        if self._guard is None or self._opened_with != self.valves:
            mode = "detect" if self.valves.detect_only else "enforce"
            settings = {"preset": self.valves.preset, "store": self.valves.store, "mode": mode}
            self._guard = AsyncGuard(ControllerConfig.model_validate(settings))
            # A copy, so that a change in place is noticed as well.
            self._opened_with = self.valves.model_copy()
        return self._guard


def _answered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a chat without its unanswered questions: those that were blocked are among them."""
    following = [*(m["role"] for m in messages[1:]), ""]
    return [
        message
        for message, after in zip(messages, following, strict=True)
        if not message["role"] == after == "user"
    ]


def _sources_in(text: str) -> tuple[int, int]:
    """Return where documents begin and end; the same place twice where there are none."""
    first = FIRST_SOURCE.search(text)
    # All up to the last closing tag, since a document may hold such tags itself. Not in one
    # pattern: that would look for the end anew from every line that opens a tag.
    last = text.rfind(CLOSING_TAG)
    if first is None or last < first.end():
        return 0, 0
    return first.start(), last + len(CLOSING_TAG)


def _without_sources(text: str) -> str:
    start, end = _sources_in(text)
    return text[:start] + text[end:]


def _text(content: object) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if part.get("text"))
    return str(content or "")


def _refused(message: Mapping[str, Any], refusal: str) -> dict[str, Any]:
    """Return the message with the refusal; `output` is what the program shows and sends again."""
    refused = {**message, "content": refusal}
    if message.get("output"):
        part = {"type": "output_text", "text": refusal}
        item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
        refused["output"] = [item]
    return refused


def _session(user: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None) -> str | None:
    chat = (metadata or {}).get("chat_id")
    who = (user or {}).get("id", "")
    return f"{who}:{chat}" if chat else None
