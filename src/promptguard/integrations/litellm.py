"""LiteLLM: a guardrail inside the proxy's process, without a service of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from promptguard.config import ControllerConfig, load_settings
from promptguard.conversation import Message, Role, messages_from, text_of
from promptguard.guard import AsyncGuard
from promptguard.integrations.extras import missing
from promptguard.turns.exchanges import system_of, with_notice, without_withheld
from promptguard.turns.result import TurnResult

try:
    from litellm.exceptions import GuardrailRaisedException
    from litellm.integrations.custom_guardrail import CustomGuardrail
except ImportError as error:
    raise missing("litellm", error) from None

# What the proxy writes in place of header values that it does not pass on.
_SCRUBBED = "[present]"
_KEYS = ("user_api_key_hash", "user_api_key")


class GuardGuardrail(CustomGuardrail):
    """Name it in the proxy's configuration as `guardrail: promptguard.integrations.litellm.…`.

    Settings come from PROMPTGUARD_CONFIG, the environment and promptguard.yaml. A blocked turn
    or answer is HTTP 400; poisoned tool results and tool descriptions are replaced, and a steered
    turn has a notice after the system prompt.
    """

    def __init_subclass__(cls, **rest: object) -> None:
        """Give a subclass the method itself: the proxy runs what stands in the class's own dict."""
        if "apply_guardrail" not in cls.__dict__:
            cls.apply_guardrail = GuardGuardrail.apply_guardrail  # type: ignore[method-assign]
        super().__init_subclass__(**rest)

    def __init__(
        self,
        config: ControllerConfig | None = None,
        *,
        guard: AsyncGuard | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        settings = load_settings()
        self.guard = guard or AsyncGuard(config or settings.conversation)
        # With it the proxy asks while a stream comes, and holds back as much as it is told.
        self.streaming_transform_mode = "incremental_diff"
        self._holdback_chars = settings.service.holdback_chars

    async def apply_guardrail(
        self,
        inputs: Any,
        request_data: Any,
        input_type: str,
        logging_obj: Any = None,
    ) -> Any:
        """Judge a request or a response; returns the inputs with what is poisoned replaced."""
        del logging_obj
        if input_type == "response":
            return await self._response(inputs, request_data)
        return await self._request(inputs, request_data)

    async def _request(self, inputs: Any, request_data: Mapping[str, Any]) -> Any:
        # Not every route of the proxy has messages; then there are texts only.
        messages: Sequence[Any] = inputs.get("structured_messages") or [
            Message(role=Role.USER, content=text) for text in inputs.get("texts", ())
        ]
        if messages:
            result = await self.guard.judge(messages, session_of(request_data))
            if result.is_blocked:
                raise self._blocked()
            inputs = _changed(inputs, messages, result)
        if inputs.get("tools"):
            inputs = {**inputs, "tools": [await self._tool(tool) for tool in inputs["tools"]]}
        return inputs

    async def _response(self, inputs: Any, request_data: Mapping[str, Any]) -> Any:
        """Judge an answer, whole or so far; it is recorded when the client resends it."""
        session, system = session_of(request_data), _system(request_data)
        texts = inputs.get("texts") or ()
        for text in (*texts, *map(_arguments, inputs.get("tool_calls") or ())):
            # Not recorded: while a stream comes the same answer is asked about several times.
            verdict = await self.guard.judge_reply(text, session, system, is_whole=False)
            if verdict.is_blocked:
                raise self._blocked()
        return {**inputs, "stream_holdback_chars": [self._holdback_chars] * len(texts)}

    async def _tool(self, tool: Any) -> Any:
        """Return a tool's definition, with a note for a description that carries orders."""
        function = tool.get("function") if isinstance(tool, Mapping) else None
        text = function.get("description") if isinstance(function, Mapping) else None
        if not isinstance(text, str) or not text or function is None:
            return tool
        origin = f"tools[{function.get('name')}].description"
        screened = await self.guard.screen(text, origin=origin)
        if screened == text:
            return tool
        return {**tool, "function": {**function, "description": screened}}

    def _blocked(self) -> Exception:
        made: Exception = GuardrailRaisedException(
            guardrail_name=self.guardrail_name,
            message=self.guard.config.refusal,
            should_wrap_with_default_message=False,
            blocked_content=True,
        )
        return made


def session_of(request_data: Mapping[str, Any]) -> str | None:
    """Return the session's id, bound to the caller's key and end user; None where none is named.

    Two keys, and two users of one key, never share a session, whatever name they give it.
    """
    # The proxy writes whose request it is into one of the two, by the route; on some routes the
    # other is the client's own.
    places = [
        place
        for name in ("metadata", "litellm_metadata")
        if isinstance(place := request_data.get(name), Mapping)
    ]
    named = (
        request_data.get("litellm_session_id")
        or _first(places, "session_id")
        or request_data.get("session_id")
    )
    if not named or named == _SCRUBBED:
        return None
    # The keys of both: one that a client made up stands beside the real one, never in its place.
    keys = [key for place in places if (key := _first([place], *_KEYS))]
    user = request_data.get("user") or _first(places, "user_api_key_end_user_id")
    # As JSON, so that no name can be written to look like another caller's key and name.
    return json.dumps([*map(str, keys or [""]), str(user), str(named)])


def _first(places: Sequence[Mapping[str, Any]], *names: str) -> Any:
    """Return the first value that is not empty, else an empty text."""
    found = (place.get(name) for place in places for name in names)
    return next((value for value in found if value), "")


def _system(request_data: Mapping[str, Any]) -> str:
    """Return what the application told the model, on OpenAI's and Anthropic's wires."""
    told = [text_of(request_data.get(name) or "") for name in ("instructions", "system")]
    messages = request_data.get("messages")
    if messages:
        told.append(system_of(messages_from(messages)))
    return "\n".join(text for text in told if text)


def _changed(inputs: Any, messages: Sequence[Any], result: TurnResult) -> Any:
    """Return the inputs without what is poisoned, and with the notice of a steered turn."""
    is_changed = result.withheld or result.notice
    # Plain texts have no place for a note or a notice.
    if not is_changed or not inputs.get("structured_messages"):
        return inputs
    cleaned = without_withheld(messages, result.withheld)
    return {**inputs, "structured_messages": with_notice(cleaned, result.notice)}


def _arguments(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else getattr(call, "function", {})
    if isinstance(function, Mapping):
        return str(function.get("arguments") or "")
    return str(getattr(function, "arguments", "") or "")
