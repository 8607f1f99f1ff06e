"""The published description, fuzzed: no 5xx, and every 4xx says what is wrong."""

from contextlib import asynccontextmanager

import httpx
import schemathesis
from guarded_service import make_parts
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from scripted_judges import LocalLikeJudge
from stub_upstream import StubUpstream

from promptguard.evaluation import PromptGuard
from promptguard.service.app import Service
from promptguard.service.auth import key_hash
from promptguard.testing import ManualClock

KEY = {
    "name": "fuzz",
    "sha256": key_hash("pg_fuzz"),
    "scopes": ("guard", "read", "admin"),
    "requests_per_minute": 1_000_000,
}
HEADERS = {"authorization": "Bearer pg_fuzz"}
_parts = make_parts(
    StubUpstream(),
    clock=ManualClock(),
    service={"keys": (KEY,)},
    guard=PromptGuard(judges=[LocalLikeJudge()]),
)
_service = Service(_parts)
_service.lifecycle.is_started = True


@asynccontextmanager
async def _no_lifespan(_):
    """Every call has its own event loop here; the service must outlive them."""
    yield


_service.app.router.lifespan_context = _no_lifespan
schema = schemathesis.openapi.from_asgi("/openapi.json", _service.app)


@schema.parametrize()
@settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
def test_no_request_breaks_the_service(case) -> None:
    """Valid or not, every answer is one that is described."""
    response = case.call(headers=HEADERS)
    case.validate_response(
        response,
        checks=(
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ),
    )
    if response.status_code in (400, 422):
        error = response.json()["error"]
        assert error["code"]
        assert error["message"]


async def test_every_route_is_described() -> None:
    """The description is public and names what the documentation promises."""
    transport = httpx.ASGITransport(_service.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    assert set(paths) == {
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/guard/check",
        "/v1/models",
        "/v1/models/{model}",
        "/v1/guard/turn",
        "/v1/guard/evaluate",
        "/v1/rubric",
        "/v1/moderations",
        "/beta/litellm_basic_guardrail_api",
        "/v1/sessions",
        "/v1/sessions/{session_id}",
        "/v1/sessions/{session_id}/explain",
        "/v1/sessions/{session_id}/replay",
        "/v1/sessions/{session_id}/label",
        "/v1/sessions/{session_id}/release",
        "/healthz",
        "/readyz",
        "/metrics",
    }
