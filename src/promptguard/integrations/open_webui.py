"""Open WebUI: a filter function; paste this file into Admin Panel → Functions.

requirements: ayniguard
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from promptguard import AsyncGuard, ControllerConfig, with_notice, without_withheld


class Filter:
    """Judges every chat: `inlet` before the model, `outlet` after it.

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
        result = await guard.judge(body["messages"], session)
        if result.is_blocked:
            raise ValueError(guard.config.refusal)
        cleaned = without_withheld(body["messages"], result.withheld)
        return {**body, "messages": with_notice(cleaned, result.notice)}

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
        text = str(messages[-1].get("content") or "")
        verdict = await guard.judge_reply(text, _session(__user__, __metadata__))
        if not verdict.is_blocked:
            return body
        refused = {**messages[-1], "content": guard.config.refusal}
        return {**body, "messages": [*messages[:-1], refused]}

    def _opened(self) -> AsyncGuard:
        if self._guard is None or self._opened_with != self.valves:
            mode = "detect" if self.valves.detect_only else "enforce"
            settings = {"preset": self.valves.preset, "store": self.valves.store, "mode": mode}
            self._guard = AsyncGuard(ControllerConfig.model_validate(settings))
            self._opened_with = self.valves.model_copy()
        return self._guard


def _session(user: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None) -> str | None:
    chat = (metadata or {}).get("chat_id")
    who = (user or {}).get("id", "")
    return f"{who}:{chat}" if chat else None
