"""The gateway's embeddings: passed through, their texts judged as untrusted content and marked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from promptguard.computations import offloaded
from promptguard.controller import Controller
from promptguard.conversation import Role
from promptguard.service.auth import Scope, permitted
from promptguard.service.body import Limits, Reading, check_count, invalid, read_json
from promptguard.service.errors import ApiError, error_responses
from promptguard.service.history import content_of
from promptguard.service.lanes import computed
from promptguard.service.routes.chat import Gateway
from promptguard.service.routes.chat_openapi import described
from promptguard.service.upstream import headers_back, while_connected
from promptguard.turns.input import Content
from promptguard.turns.judge import TurnJudge
from promptguard.verdict import Action, ContentFinding

PATH = "/embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsApi:
    """Handler of the embeddings route. Nothing is stored: a text is no turn of a session."""

    gateway: Gateway

    async def embed(self, request: Request) -> Response:
        """Pass a request through with the judgement of its texts in the headers.

        It is refused only where the policy blocks poisoned content.
        """
        permitted(request, Scope.GUARD)
        raw = await request.body()
        controller = self.gateway.recorder.controller
        limits = self.gateway.limits()
        embedded = await judged_texts(await computed(read_json, raw), limits, controller)
        headers = embedded.headers
        if embedded.is_blocked:
            refusal = self.gateway.recorder.refusal
            raise self.gateway.blocked_error(refusal, "input").with_headers(headers)
        call = self.gateway.upstream.send(
            "POST", PATH, body=raw, headers=self.gateway.passed_headers(request)
        )
        try:
            response = await while_connected(request, call)
        except ApiError as error:
            raise error.with_headers(headers) from None
        back = {**headers_back(response), **headers}
        return Response(response.content, response.status_code, back)


_ACTION = "x-promptguard-action"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTexts:
    """What was found in texts that are to be embedded, as headers of the answer."""

    headers: Mapping[str, str]
    is_blocked: bool


async def judged_texts(
    body: Mapping[str, object], limits: Limits, controller: Controller
) -> JudgedTexts:
    """Judge the texts of an embeddings request, each by itself."""
    contents, is_judged = await computed(_contents, body, limits)
    findings = await asyncio.to_thread(offloaded, _judged, controller.judge, contents)
    headers = _headers(findings, is_judged=is_judged)
    is_enforced = controller.config.mode == "enforce"
    return JudgedTexts(headers=headers, is_blocked=is_enforced and headers[_ACTION] == Action.BLOCK)


def _contents(body: Mapping[str, object], limits: Limits) -> tuple[tuple[Content, ...], bool]:
    """Return the texts to embed, and whether all of the input is text."""
    given = body.get("input")
    if not isinstance(given, (str, list)):
        raise invalid("input", "must be text or a list of texts")
    items = given if isinstance(given, list) else [given]
    check_count(items, "input", limits)
    reading = Reading(limits=limits)
    for at, item in enumerate(items):
        if isinstance(item, str):
            reading.message(Role.TOOL, item, ("input", at), origin=f"input[{at}]")
    is_all_text = all(isinstance(item, str) for item in items)
    return tuple(map(content_of, reading.messages)), is_all_text


def _judged(judge: TurnJudge, contents: Sequence[Content]) -> tuple[ContentFinding, ...]:
    return judge.contents.judge(contents, "")


def _headers(findings: Sequence[ContentFinding], *, is_judged: bool) -> dict[str, str]:
    actions = [finding.action for finding in findings]
    worst = max(actions, key=lambda action: action.severity, default=Action.ALLOW)
    flagged = [finding.origin for finding in findings if finding.action is not Action.ALLOW]
    headers = {
        # An index is no conversation: a text is marked there, not replaced.
        _ACTION: (Action.ANNOTATE if worst is Action.STRIP else worst).value,
        "x-promptguard-risk": f"{max((f.risk for f in findings), default=0.0):.4f}",
    }
    if flagged:
        # A header has a bound, and a request may hold thousands of texts.
        headers["x-promptguard-flagged"] = ", ".join(flagged[:16])
    if not is_judged:
        headers["x-promptguard-not-judged"] = "input"
    return headers


def embedding_routes(api: EmbeddingsApi) -> APIRouter:
    """Return the embeddings route."""
    routes = APIRouter(tags=["gateway"], responses=error_responses(502, 504))
    description = described("Embeddings, marked", "input")
    routes.add_api_route("/v1/embeddings", api.embed, methods=["POST"], openapi_extra=description)
    return routes
