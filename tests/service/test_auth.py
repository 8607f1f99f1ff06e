"""Keys, scopes, rates, and who is local."""

import hmac

import pytest

from promptguard.config import KeyConfig, ServiceConfig
from promptguard.errors import ConfigError
from promptguard.service.auth import (
    Authenticator,
    TokenBucket,
    check_host,
    key_hash,
    local_only_error,
    new_key,
)
from promptguard.service.errors import ApiError
from promptguard.testing import ManualClock


def keys(**scopes: tuple[str, ...]) -> tuple[dict, ...]:
    return tuple(
        {"name": name, "sha256": key_hash(f"pg_{name}"), "scopes": given}
        for name, given in scopes.items()
    )


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer pg_{name}"}


async def test_without_a_valid_key_nothing_is_done(guarded) -> None:
    """401 before the body is read, in OpenAI's shape."""
    guard = await guarded(service={"keys": keys(app=("guard",))})
    for headers in ({}, bearer("other"), {"authorization": "Basic x"}, {"x-api-key": "no"}):
        reply = await guard.chat("hello", headers=headers)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"
        assert reply.headers["www-authenticate"] == "Bearer"
    assert guard.upstream.calls == 0
    for headers in (bearer("app"), {"x-api-key": "pg_app"}, {"api-key": "pg_app"}):
        assert (await guard.chat("hello", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/chat/completions", "guard"),
        ("GET", "/v1/models", "guard"),
        ("POST", "/v1/guard/turn", "guard"),
        ("POST", "/v1/guard/evaluate", "guard"),
        ("POST", "/v1/moderations", "guard"),
        ("POST", "/beta/litellm_basic_guardrail_api", "guard"),
        ("POST", "/v1/rubric", "guard"),
        ("GET", "/v1/sessions", "read"),
        ("GET", "/v1/sessions/x", "read"),
        ("GET", "/v1/sessions/x/explain", "read"),
        ("POST", "/v1/sessions/x/replay", "read"),
        ("GET", "/metrics", "read"),
        ("DELETE", "/v1/sessions/x", "admin"),
        ("POST", "/v1/sessions/x/label", "admin"),
    ],
)
async def test_each_route_needs_its_scope(guarded, method, path, scope) -> None:
    """Every other scope gets 403; the right one gets further."""
    everything = keys(guard=("guard",), read=("read",), admin=("admin",))
    guard = await guarded(service={"keys": everything})
    body = {
        "/v1/guard/turn": {"user_input": "hi"},
        "/v1/guard/evaluate": {"prompt": "hi"},
        "/v1/moderations": {"input": "hi"},
        "/beta/litellm_basic_guardrail_api": {"input_type": "request", "texts": ["hi"]},
        "/v1/rubric": {"messages": [{"role": "user", "content": "hi"}]},
        "/v1/sessions/x/label": {"verdict": "attack"},
        "/v1/sessions/x/replay": {},
    }.get(path)
    for name in ("guard", "read", "admin"):
        reply = await guard.client.request(method, path, headers=bearer(name), json=body)
        assert (reply.status_code == 403) is (name != scope), (name, reply.text)


async def test_probes_and_the_description_need_no_key(guarded) -> None:
    """Health is for load balancers, the description for tools."""
    guard = await guarded(service={"keys": keys(app=("guard",))})
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert (await guard.client.get(path)).status_code == 200


async def test_a_key_above_its_rate_waits(guarded) -> None:
    """429 with the seconds to wait; another key is not affected."""
    limited = [{**key, "requests_per_minute": 2} for key in keys(a=("guard",), b=("guard",))]
    guard = await guarded(service={"keys": limited})
    codes = [(await guard.chat("x", headers=bearer("a"))).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    refused = await guard.chat("x", headers=bearer("a"))
    assert 1 <= int(refused.headers["retry-after"]) <= 31
    assert (await guard.chat("x", headers=bearer("b"))).status_code == 200
    guard.clock.advance(30)
    assert (await guard.chat("x", headers=bearer("a"))).status_code == 200


def test_a_bucket_never_holds_more_than_a_minutes_worth() -> None:
    """Neither idle hours nor a clock gone backwards add to it."""
    bucket = TokenBucket(per_minute=3)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(20.0)
    assert [bucket.take(1e6) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(1e6) > 0
    assert bucket.take(5.0) > 0


def test_every_hash_is_compared_in_constant_time(monkeypatch) -> None:
    """Also when an earlier one matched."""
    compared = []
    monkeypatch.setattr(
        hmac,
        "compare_digest",
        lambda a, b, real=hmac.compare_digest: compared.append(b) or real(a, b),
    )
    known = tuple(KeyConfig(**key) for key in keys(a=("guard",), b=("guard",), c=("guard",)))
    found = Authenticator(known, clock=ManualClock()).identify("pg_a")
    assert found is not None
    assert found.name == "a"
    assert len(compared) == 3


def test_replaced_keys_hold_at_once_and_keep_their_buckets() -> None:
    """A removed key is refused, one that stays is not given a new allowance."""
    clock = ManualClock()
    key = KeyConfig(name="a", sha256=key_hash("pg_a"), requests_per_minute=1)
    known = Authenticator((key,), clock=clock)
    known.admit({"authorization": "Bearer pg_a"})
    other = KeyConfig(name="b", sha256=key_hash("pg_b"))
    known.replace_keys((key, other))
    with pytest.raises(ApiError) as limited:
        known.admit({"authorization": "Bearer pg_a"})
    assert limited.value.status_code == 429
    known.replace_keys((other,))
    with pytest.raises(ApiError) as unknown:
        known.admit({"authorization": "Bearer pg_a"})
    assert unknown.value.status_code == 401


def test_a_key_that_is_taken_back_while_it_is_checked_is_not_known(monkeypatch) -> None:
    """A reload happens in another thread."""
    known = tuple(KeyConfig(**key) for key in keys(a=("guard",), b=("guard",)))
    authenticator = Authenticator(known, clock=ManualClock())
    identify = authenticator.identify

    def slow(key: str) -> object:
        found = identify(key)
        authenticator.replace_keys(known[1:])
        return found

    monkeypatch.setattr(authenticator, "identify", slow)
    with pytest.raises(ApiError) as refused:
        authenticator.admit(bearer("a"))
    assert refused.value.status_code == 401


def test_keys_are_long_random_and_distinct() -> None:
    """256 bits each."""
    made = {new_key() for _ in range(50)}
    assert len(made) == 50
    assert all(len(key) >= 45 and key.startswith("pg_") for key in made)


def test_without_keys_only_loopback_may_be_listened_on() -> None:
    """Everything else is a configuration error that says what to do."""
    for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"):
        check_host(host, ())
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com"):
        with pytest.raises(ConfigError, match="promptguard keys new"):
            check_host(host, ())
        check_host(host, (KeyConfig(name="a", sha256="0" * 64),))


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.168.1.7", {}),
        ("127.0.0.1", {"host": "evil.example"}),
        ("127.0.0.1", {"host": "127.0.0.1.evil.example"}),
        ("127.0.0.1", {"origin": "https://evil.example"}),
        ("127.0.0.1", {"origin": "null"}),
    ],
)
async def test_without_keys_only_local_programs_are_answered(guarded, peer, headers) -> None:
    """Neither other machines nor web pages in the local browser."""
    guard = await guarded(peer=peer)
    reply = await guard.chat("hello", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "local_only")


async def test_an_odd_content_length_is_no_failure_of_ours(guarded) -> None:
    """Python takes a superscript for a digit, and for no number."""
    guard = await guarded()
    headers = {"content-length": b"\xb2", "content-type": "application/json"}
    reply = await guard.client.post("/v1/moderations", content=b'{"input": "hi"}', headers=headers)
    assert reply.status_code == 200


async def test_local_names_are_all_local(guarded) -> None:
    """With ports, brackets and our own pages as origin."""
    guard = await guarded()
    for headers in (
        {"host": "localhost:8787"},
        {"host": "[::1]:8787"},
        {"host": "127.0.0.1", "origin": "http://localhost:8787"},
    ):
        assert (await guard.chat("hello", headers=headers)).status_code == 200


def test_key_names_are_unique_and_cannot_forge_a_session_of_another() -> None:
    """A colon in a name could make `a:b` + `c` the same as `a` + `b:c`."""
    with pytest.raises(ConfigError):
        KeyConfig(name="a:b", sha256="0" * 64)
    twice = (KeyConfig(name="a", sha256="0" * 64), KeyConfig(name="a", sha256="1" * 64))
    with pytest.raises(ConfigError, match="same name"):
        ServiceConfig(keys=twice)


@pytest.mark.parametrize(
    ("name", "value", "is_local"),
    [
        ("host", "localhost", True),
        ("host", "127.0.0.1:8787", True),
        ("host", "[::1]:8787", True),
        ("host", "[::1]evil", False),
        ("host", "localhost:80@evil.com", False),
        ("host", "localhost:80:evil", False),
        ("host", "", False),
        ("origin", "http://localhost:3000", True),
        ("origin", "https://[::1]", True),
        ("origin", "http://localhost:80@evil.com", False),
        ("origin", "http://localhost/evil", False),
        ("origin", "evil://localhost", False),
        ("origin", "null", False),
    ],
)
def test_only_exact_local_addresses_are_local(name, value, is_local) -> None:
    """What only begins like an address of this machine is somebody else's."""
    assert (local_only_error({name: value}, "127.0.0.1") is None) is is_local


def test_a_key_has_no_name_of_the_bundled_conversations() -> None:
    """Its sessions would be left out of lists and counts, and texts be allowed to none of it."""
    with pytest.raises(ConfigError, match="demo"):
        ServiceConfig(keys=(KeyConfig(name="demo", sha256="0" * 64),))
