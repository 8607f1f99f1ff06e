"""`promptguard doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from promptguard.cli import EXIT_ALLOW, EXIT_ERROR
from promptguard.cli.service_checks import (
    check_store,
    examine_audit,
    examine_keys,
    examine_model_files,
    examine_store,
    examine_webhooks,
    require_writable,
)
from promptguard.cli.stored import config_option, json_option
from promptguard.cli.upstream import examine_upstream
from promptguard.config import (
    LOCAL_MODEL,
    CacheConfig,
    EndpointConfig,
    PromptGuardConfig,
    Settings,
    load_settings,
)
from promptguard.counts import counted
from promptguard.errors import PromptGuardError, StoreError

_COLOURS = {"ok": "green", "info": "blue", "broken": "red"}
# A name, and what returns what is well or raises what is not.
_Examination = tuple[str, Callable[[], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an examination came to: `ok`, `info` or `broken`, and a sentence."""

    name: str
    state: str
    message: str


@click.command()
@config_option
@click.option("--endpoints", is_flag=True, help="Call the endpoints too; this may cost money.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, config_file: str | None, endpoints: bool, as_json: bool) -> None:
    """Check configuration, model, cache, store, service, upstream and, on request, endpoints.

    Exit code: 0 where all is well, 3 where something is not.
    """
    found = []
    for finding in _findings(config_file, endpoints=endpoints):
        found.append(finding)
        if not as_json:
            state = click.style(f"{finding.state:7}", fg=_COLOURS[finding.state])
            click.echo(f"{state} {finding.name}: {finding.message}")
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found], ensure_ascii=False))
    is_broken = any(finding.state == "broken" for finding in found)
    ctx.exit(EXIT_ERROR if is_broken else EXIT_ALLOW)


def _findings(config_file: str | None, *, endpoints: bool) -> Iterator[Finding]:
    try:
        settings = load_settings(config_file)
    except PromptGuardError as error:
        yield Finding(name="configuration", state="broken", message=str(error))
        # Everything else depends on the settings.
        return
    yield from map(_examined, _examinations(settings))
    # The usual Ollama may well be absent where only the guard API is used.
    if "upstream" in settings.service.model_fields_set:
        yield _examined(("upstream", partial(examine_upstream, settings)))
    else:
        usual = settings.service.upstream
        message = f"service.upstream is not set; the gateway would forward to {usual}, not called"
        yield Finding(name="upstream", state="info", message=message)
    if endpoints:
        yield from map(_examined, _endpoint_examinations(settings))


def _examined(examination: _Examination) -> Finding:
    name, examine = examination
    try:
        return Finding(name=name, state="ok", message=examine())
    except PromptGuardError as error:
        message = str(error)
    except OSError as error:
        # Such as a path that is too long, or lies in a folder that may not be looked into.
        message = f"{error.filename} cannot be used: {error.strerror}"
    return Finding(name=name, state="broken", message=message)


def _examinations(settings: Settings) -> Iterator[_Examination]:
    service, cache = settings.service, settings.evaluation.cache
    yield "configuration", partial(_examine_settings, settings)
    if LOCAL_MODEL in _models(settings) or settings.conversation.use_model:
        yield "model files", examine_model_files
        yield "model", _examine_model
    if cache.path is not None:
        yield "cache", partial(_examine_cache, cache, Path(cache.path))
    yield "store", partial(examine_store, settings.conversation.store)
    if service.keys:
        yield "keys", partial(examine_keys, service.keys)
    if service.audit_file is not None:
        yield "audit", partial(examine_audit, service.audit_file)
    if service.webhooks:
        yield "webhooks", partial(examine_webhooks, service)


def _endpoint_examinations(settings: Settings) -> Iterator[_Examination]:
    for model, endpoint in _models(settings).items():
        if model != LOCAL_MODEL and not model.startswith("recorded:"):
            yield model, partial(_examine_endpoint, model, endpoint)
    url = settings.conversation.store
    # A database server is called only on request, like any other endpoint.
    if not url.startswith(("memory:", "sqlite:")):
        yield "store connection", partial(_examine_connection, url)


def _models(settings: Settings) -> dict[str, EndpointConfig]:
    conversation = settings.conversation
    found = dict.fromkeys(settings.evaluation.models, settings.evaluation.endpoint)
    if conversation.evaluation is not None:
        found |= dict.fromkeys(conversation.evaluation.models, conversation.evaluation.endpoint)
    if conversation.model is not None:
        found[conversation.model] = conversation.endpoint
    return found


def _examine_settings(settings: Settings) -> str:
    from promptguard.evaluation import PromptGuard
    from promptguard.turns.judge import TurnJudge

    # Reads weights, rules and signals; the readers have lines of their own.
    TurnJudge.open(settings.conversation.model_copy(update={"use_model": False}))
    PromptGuard(settings.evaluation)
    if settings.conversation.evaluation is not None:
        PromptGuard(settings.conversation.evaluation)
    kinds = ", ".join(settings.evaluation.evaluation_types)
    return f"{kinds} merged by {settings.evaluation.ensemble_strategy}"


def _examine_model() -> str:
    from promptguard.evaluation import PromptGuard

    guard = PromptGuard(PromptGuardConfig())
    try:
        metrics = guard.evaluate_sync("What time is it in Lima?")
    finally:
        guard.close_sync()
    return f"judges; decision threshold {metrics.decision_threshold:.2f}"


def _examine_cache(config: CacheConfig, path: Path) -> str:
    from promptguard.evaluators.cache import JudgementCache

    require_writable(path, makes_folder=True)
    cache = JudgementCache(str(path), ttl_s=config.ttl_s, max_bytes=config.max_bytes)
    status = cache.status()
    cache.close()
    if status.faults:
        raise StoreError(f"{config.path} failed; it is begun anew where it was corrupt.")
    return f"{counted(status.entries, 'judgement')}, {counted(status.size_bytes, 'byte')}"


def _examine_endpoint(model: str, endpoint: EndpointConfig) -> str:
    from promptguard.conversation import Message, Role
    from promptguard.providers import open_provider

    async def call() -> str:
        provider = open_provider(model, endpoint)
        try:
            # The shortest answer there is: it may cost money.
            asked = (Message(role=Role.USER, content="Answer with one word."),)
            answer = await provider.complete(asked, max_tokens=1)
        finally:
            await provider.close()
        return f"answers as {answer.model}"

    return asyncio.run(call())


def _examine_connection(url: str) -> str:
    check_store(url)
    return "answers and can be written"
