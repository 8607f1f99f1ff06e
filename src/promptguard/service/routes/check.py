"""A yes or no for proxies that ask before they forward: Envoy's ext_authz, forward-auth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from promptguard.service.anthropic_wire import MessagesWire
from promptguard.service.auth import Scope, permitted
from promptguard.service.body import Limits, invalid, read_json
from promptguard.service.completions_wire import CompletionsWire
from promptguard.service.errors import error_body, error_responses
from promptguard.service.intake import Incoming
from promptguard.service.lanes import computed
from promptguard.service.openai_wire import ChatWire
from promptguard.service.replies import ReplyRecorder
from promptguard.service.responses_wire import ResponsesWire
from promptguard.service.routes.embeddings import PATH as EMBEDDINGS
from promptguard.service.routes.embeddings import judged_texts
from promptguard.service.sessions import Owner, given_session_id
from promptguard.service.settings import LiveSettings
from promptguard.service.verdicts import verdict_headers
from promptguard.service.wire import Wire

_ANY_MODEL = "unnamed"
PATH = "/v1/guard/check"
_BODY: dict[str, object] = {
    "description": "A request in any of the gateway's formats; none at all passes",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
# Chat before completions, whose path ends its own.
_WIRES: tuple[type[Wire], ...] = (ChatWire, CompletionsWire, ResponsesWire)
_METHODS = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckApi:
    """Handler of the check routes."""

    recorder: ReplyRecorder
    live: LiveSettings

    async def check(self, request: Request, path: str = "") -> Response:
        """Answer 200 where a request may pass and 403 where not; no body, or none of ours, passes.

        A proxy cannot take a poisoned content out of a request, so that is a 403 as well. `path`
        is what the proxy appends. No header can name it: clients send headers as they like.
        """
        principal = permitted(request, Scope.GUARD)
        raw = await request.body()
        # Read strictly although nothing is forwarded: the model behind may read it otherwise.
        body = await computed(read_json, raw) if raw.strip() else {}
        config = self.live.current.service
        limits = Limits.of(config, self.recorder.controller.config)
        if _ends_with(path, EMBEDDINGS) and "input" in body:
            embedded = await judged_texts(body, limits, self.recorder.controller)
            return self._answer(embedded.headers, is_denied=embedded.is_blocked, param="input")
        wire = _wire_of(path, body)
        if wire is None:
            return Response(headers={"x-promptguard-judged": "false"})
        # Which model is asked makes no difference here, so a proxy need not say.
        asked = await computed(wire.asked, {"model": _ANY_MODEL, **body}, limits)
        intake = self.recorder.intake
        admission = await intake.admit(
            Incoming(
                owner=Owner(principal=principal, end_user=asked.end_user),
                messages=asked.messages,
                contents=asked.contents,
                system=asked.system,
                session_id=given_session_id(config.session_fields, request.headers, asked.body),
                # The proxy forwards by itself, so answers are seen only when they are resent.
                learns_replies=True,
                model=asked.model,
            )
        )
        intake.remember(admission, admission.state)
        is_denied = admission.result.is_blocked or bool(admission.stripped)
        headers = verdict_headers(admission.result)
        return self._answer(headers, is_denied=is_denied, param=wire.field)

    def _answer(self, headers: Mapping[str, str], *, is_denied: bool, param: str) -> Response:
        if not is_denied:
            return Response(headers=headers)
        code = self.live.current.service.block_code
        denied = error_body(403, self.recorder.refusal, code=code, param=param)
        return JSONResponse(denied, 403, headers)


def _ends_with(path: str, name: str) -> bool:
    return f"/{path}".rstrip("/").endswith(name)


def _wire_of(path: str, body: Mapping[str, object]) -> Wire | None:
    """Return the format of a request: by the path that the proxy appends, else by its fields."""
    if not body:
        return None
    # Asked first: a request of Anthropic's looks like a chat, but its blocks mean other things.
    if _ends_with(path, MessagesWire.path):
        return MessagesWire()
    for wire in _WIRES:
        # A further field must not make a content of what this path's model reads as the user's.
        if wire.field in body and _ends_with(path, wire.path):
            return wire()
    # The Responses API takes an object as `prompt`, which names one that the upstream keeps.
    is_spoken = isinstance(body.get("prompt"), (str, list))
    if ("messages" in body) + ("input" in body) + is_spoken > 1:
        raise invalid("body", "has the words of two formats; let the proxy append the path")
    if "messages" in body:
        return ChatWire()
    if "prompt" in body and "input" not in body:
        return CompletionsWire()
    return ResponsesWire() if "input" in body else None


def check_routes(api: CheckApi) -> APIRouter:
    """Return the check routes; a proxy may append the path that it guards."""
    routes = APIRouter(tags=["guard"], responses=error_responses())
    routes.add_api_route(
        PATH,
        api.check,
        methods=["POST"],
        response_class=Response,
        responses={200: {"description": "The request may pass"}},
        openapi_extra={"summary": "May this request pass?", "requestBody": _BODY},
    )
    for path, methods in ((PATH, _METHODS), (f"{PATH}/{{path:path}}", ["POST", *_METHODS])):
        routes.add_api_route(path, api.check, methods=methods, include_in_schema=False)
    return routes
