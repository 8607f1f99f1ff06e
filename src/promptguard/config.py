"""Every setting, its default and its bounds."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator

from promptguard.errors import ConfigError
from promptguard.setting_faults import Section
from promptguard.settings import read_source

LOCAL_MODEL = "local"
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
# Callers may write a list; what is kept is a tuple, so that a configuration cannot change.
Names = Annotated[
    Sequence[str], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
]
# Equal mappings in one order, so that `config_hash` is the same for them.
_SORTED = AfterValidator(lambda value: dict(sorted(value.items())))


class EvaluationMode(StrEnum):
    """How several models are used."""

    SINGLE = "single"
    PARALLEL = "parallel"
    CASCADE = "cascade"


class PriceConfig(Section):
    """What a model costs, in US dollars per million tokens."""

    input: float = Field(ge=0)
    """Price of what is sent."""
    output: float = Field(ge=0)
    """Price of what is answered."""


class EndpointConfig(Section):
    """How LLM endpoints are called, by judges and providers alike."""

    base_urls: Annotated[dict[str, str], _SORTED] = Field(default={})
    """Address per provider name, over the built-in table (`ollama`, `openai`, ...)."""
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    """Longest wait for one call."""
    retries: int = Field(default=2, ge=0, le=10)
    """Further attempts after 429, 5xx or a timeout."""
    breaker_failures: int = Field(default=5, ge=1)
    """Failures in a row after which an endpoint is left alone."""
    breaker_cooldown_s: float = Field(default=30.0, gt=0)
    """How long it is left alone."""
    prices: Annotated[dict[str, PriceConfig], _SORTED] = Field(default={})
    """Price per model, by the name it is configured under, over the shipped table."""


class CacheConfig(Section):
    """Where judgements are kept."""

    path: str | None = None
    """SQLite file; None keeps no cache."""
    ttl_s: float = Field(default=7 * 24 * 3600.0, gt=0)
    """Age at which an entry is judged anew."""
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    """Size above which the least recently used entries go."""


class BudgetConfig(Section):
    """How much the cascade may spend on the LLM judge."""

    calls_per_session: int = Field(default=20, ge=0)
    """Calls for one session."""
    calls_per_day: int = Field(default=2000, ge=0)
    """Calls in 24 hours."""
    usd_per_day: float = Field(default=5.0, ge=0)
    """Money in 24 hours."""
    unknown_price: Literal["refuse", "allow"] = "refuse"
    """A model without a known price: `refuse` asks for one, `allow` limits its calls only."""
    seconds_per_call: float = Field(default=10.0, gt=0)
    """Longest wait for one call."""


class PromptGuardConfig(Section):
    """Evaluation of one prompt."""

    models: Names = (LOCAL_MODEL,)
    """Judges: `local`, `recorded:PATH`, or an endpoint's model such as `ollama/llama3.2`."""
    evaluation_type: str | Names = ("ayni_relational", "relational_structure")
    """One evaluation type or several: several are an ensemble."""
    ensemble_strategy: str = "max_falsehood"
    """How the evaluations of a layer are merged."""
    mode: EvaluationMode = EvaluationMode.SINGLE
    """`single` asks the first model, `parallel` all, `cascade` the next one where in doubt."""
    on_partial: Literal["raise", "continue"] = "raise"
    """What happens when one of several evaluations fails."""
    weights: Annotated[dict[str, float], _SORTED] = Field(default={})
    """Weight per evaluation type, for the `weighted` strategy."""
    preset: Literal["strict", "balanced", "permissive"] = "balanced"
    """How much evidence the embedded judge takes: its false-positive budget."""
    false_positive_budget: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Share of benign prompts that the embedded judge may block; overrides the preset."""
    decision_threshold: Probability | None = None
    """Falsehood at which an evaluation counts as a detection; None: the judge's own decision."""
    cascade_indeterminacy: Probability = 0.4
    """Indeterminacy from which the cascade asks the next judge."""
    max_concurrency: int = Field(default=8, ge=1, le=256)
    """Judgements under way at once."""
    max_chars: int = Field(default=1_000_000, ge=1)
    """Longest prompt that is judged; a longer one is an error, never cut silently."""
    endpoint: EndpointConfig = EndpointConfig()
    """How endpoints are called."""
    cache: CacheConfig = CacheConfig()
    """Where judgements are kept."""
    budget: BudgetConfig = BudgetConfig()
    """What the cascade may spend."""

    @field_validator("models", mode="before")
    @classmethod
    def _models_as_tuple(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("evaluation_type", mode="before")
    @classmethod
    def _one_name_or_several(cls, value: object) -> object:
        # Else the faults of both forms would be told, in pydantic's words for them.
        names = value if isinstance(value, Sequence) else (value,)
        if not all(isinstance(name, str) for name in names):
            raise ValueError("write a name or a list of names")
        return value

    @field_validator("models", "evaluation_type")
    @classmethod
    def _not_empty(cls, value: str | Sequence[str]) -> str | Sequence[str]:
        if not value or not all(value):
            raise ValueError("must not be empty")
        return value

    @property
    def evaluation_types(self) -> tuple[str, ...]:
        """The evaluation types as a tuple, however they were given."""
        given = self.evaluation_type
        return (given,) if isinstance(given, str) else tuple(given)


class PolicyConfig(Section):
    """What is done at which risk: the lowest range at which each action starts.

    Ranges have the names of the modes. A turn's own risk decides; what the session has shown adds
    at most steering.
    """

    annotate_from: str | None = "CAUTIOUS"
    """Mode from which findings are attached."""
    steer_from: str | None = "ELEVATED"
    """Mode from which the model gets a hardened system message."""
    review_from: str | None = None
    """Mode from which a person is asked to look."""
    block_from: str | None = "CRITICAL"
    """Mode from which the turn is refused."""
    content_from: str | None = "CRITICAL"
    """Range from which untrusted content is acted on."""
    definitions_by: Literal["rules", "readers", "nobody"] = "rules"
    """Who must find a tool or schema poisoned before it is acted on: a rule beside the readers, the
    readers alone, or nobody. Definitions give orders by their nature."""
    content_action: Literal["strip", "block", "review", "annotate"] = "strip"
    """`strip` replaces the poisoned content by a note and lets the turn go on."""
    lock_after_blocks: int | None = Field(default=None, ge=1)
    """Blocked turns after which the session is locked until someone releases it; None: never."""
    lock_on_hard: bool = False
    """Lock the session at a hard violation."""


class TemporalSettings(Section):
    """The adaptive numbers of the Frozen Instinct Layer, such as `tune --temporal` fits them."""

    half_life_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a past violation counts half; None: the shipped number."""
    cumulative_threshold: Annotated[float, Field(gt=0)] | None = None
    """Past risk from which a further violation is hard, and the past counts as risky."""
    escalation_threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """Harm score at which rising scores are an escalation."""


class ControllerConfig(Section):
    """Following a conversation."""

    mode: Literal["enforce", "detect"] = "enforce"
    """`detect` reports and never changes traffic."""
    preset: Literal["strict", "balanced", "permissive"] = "balanced"
    """How much evidence it takes: the false-positive budget per conversation."""
    false_positive_budget: Annotated[float, Field(gt=0, le=0.5)] | None = None
    """Share of benign conversations that may be blocked; overrides the preset."""
    policy: PolicyConfig = PolicyConfig()
    """What is done in which mode."""
    model: str | None = None
    """The guarded model, such as `ollama/llama3.2`; None: judge only, no reply."""
    system_prompt: str = ""
    """System message sent to the guarded model."""
    store: str = "sqlite:promptguard.db"
    """`memory:`, `sqlite:PATH` or `postgresql://...`."""
    persona: Literal["strict", "empathetic", "educational", "professional", "friendly"] = "strict"
    """Which directives weigh most."""
    use_model: bool = True
    """Judge with the embedded model as well as the rules."""
    use_temporal: bool = True
    """Let the Frozen Instinct Layer look at earlier turns."""
    temporal: TemporalSettings = TemporalSettings()
    """How it looks at them."""
    signals: Names | None = None
    """Signals in use; None: all."""
    weights: str | None = None
    """File of fitted evidence weights; None: the shipped one."""
    rules: Names = ()
    """Files of further rule packs, in the form of the bundled ones."""
    evaluation: PromptGuardConfig | None = None
    """Second-opinion judge for turns in doubt, such as an LLM; off by default."""
    on_evaluator_error: Literal["block", "allow", "raise"] = "block"
    """What happens when the judge cannot judge."""
    refusal: str = "I'm sorry, but I can't assist with that."
    """Reply to a blocked turn."""
    store_text: Literal["keep", "hash", "off"] = "keep"
    """Whether message text is stored."""
    retention_days: float | None = Field(default=None, gt=0)
    """Days after which stored text is dropped."""
    max_chars: int = Field(default=1_000_000, ge=1)
    """Longest message that is judged; a longer one is an error."""
    endpoint: EndpointConfig = EndpointConfig()
    """How the guarded model is called."""


class KeyConfig(Section):
    """One API key, stored as its hash."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Name in logs and audits; sessions are bound to it, so that a key can be changed."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Hash of the key, as `promptguard keys new` prints it."""
    scopes: tuple[Literal["guard", "read", "admin"], ...] = ("guard",)
    """What the key may do."""
    tenant: str = Field(default="default", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Whose sessions it sees."""
    requests_per_minute: int = Field(default=600, ge=1)
    """Rate limit."""
    requests_at_once: int = Field(default=64, ge=1)
    """Requests under way at the same time; further ones get 429."""


class WebhookConfig(Section):
    """Where events are sent."""

    url: str = Field(pattern=r"^https?://[^\s/?#@]+(/[^\s#]*)?$")
    """Address that gets a POST per event; `https` but on loopback."""
    secret_env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable that holds the secret which signs the events."""
    events: tuple[Literal["block", "strip", "lock", "label"], ...] = ("block", "lock")
    """What is sent: a blocked turn, poisoned content, a locked session, a reviewer's label."""


class ServiceConfig(Section):
    """The HTTP service."""

    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback needs keys."""
    port: int = Field(default=8787, ge=0, le=65535)
    """Port to listen on."""
    upstream: str = "ollama"
    """Provider name or base URL the gateway forwards to."""
    upstream_key_env: str | None = None
    """Environment variable that holds the upstream's key."""
    keys: tuple[KeyConfig, ...] = ()
    """API keys; none: loopback only, no key needed."""
    session_fields: Names = (
        "header:x-session-id",
        "header:x-litellm-session-id",
        "header:helicone-session-id",
        "body:metadata.session_id",
        "body:litellm_session_id",
        "body:thread_id",
        "body:conversation_id",
    )
    """Where a session id is looked for, in order; else a hash chain of the messages."""
    block_style: Literal["refusal", "error"] = "refusal"
    """A blocked turn answers 200 with a refusal, or HTTP 400."""
    block_code: Literal["content_filter", "content_policy_violation"] = "content_filter"
    """The error's code where a blocked turn is an error."""
    prompt_leaks: Literal["cut", "allow"] = "cut"
    """An answer that repeats the system prompt or its secrets is cut, or let through."""
    holdback_chars: int = Field(default=200, ge=0)
    """Characters of a streamed reply held back until judged."""
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Largest request body."""
    max_messages: int = Field(default=2000, ge=1)
    """Most messages in one request."""
    max_turns: int = Field(default=10_000, ge=1)
    """Most turns in one session."""
    max_connections: int = Field(default=1000, ge=1)
    """Requests under way at the same time; further ones get 503. Idle connections make room."""
    client_timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for a request's headers, for its body, and for a client that does not read."""
    shutdown_s: float = Field(default=30.0, ge=0)
    """How long turns in flight may take to finish at shutdown."""
    threads: int = Field(default=4, ge=1, le=256)
    """Threads that judge short turns."""
    long_threads: int = Field(default=1, ge=1, le=256)
    """Threads for requests with long bodies and for reading long sessions."""
    heavy_threads: int = Field(default=1, ge=1, le=64)
    """Threads for replay, explanation, rubric and counts of what other settings would do."""
    child_process: bool = True
    """Compute what is long or heavy in a process of its own, of lower priority."""
    max_waiting: int = Field(default=1000, ge=1)
    """Computations that may wait for a thread; a quarter of it for long ones, 16 heavy ones."""
    heavy_timeout_s: float = Field(default=60.0, gt=0)
    """Longest time for a replay, an explanation, a rubric or one step of a count."""
    webhooks: tuple[WebhookConfig, ...] = ()
    """Where events are sent."""
    upstream_timeout_s: float = Field(default=120.0, gt=0, le=600)
    """Longest wait for the upstream."""
    stream_timeout_s: float = Field(default=1800.0, gt=0)
    """Longest time that a streamed answer may take as a whole."""
    audit_file: str | None = None
    """File to which administrative actions are appended; None: to the log only."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level of the structured logs."""
    dashboard: bool = True
    """Serve the web pages."""
    demo: bool = True
    """Load the bundled conversations once into an empty store."""
    weights_folder: str | None = None
    """Folder whose weights files (`*.toml`) the review page tries out and applies."""
    quality_report: str = "benchmarks/published.json"
    """Validation report (JSON) that the quality page shows."""

    @field_validator("keys")
    @classmethod
    def _each_key_once(cls, keys: tuple[KeyConfig, ...]) -> tuple[KeyConfig, ...]:
        if any(key.name == "demo" for key in keys):
            raise ValueError("sessions of a key named demo would count as the bundled ones")
        for values in ([key.name for key in keys], [key.sha256 for key in keys]):
            if len(set(values)) < len(values):
                raise ValueError("two keys have the same name or the same hash")
        return keys

    @field_validator("session_fields")
    @classmethod
    def _known_places(cls, places: Sequence[str]) -> Sequence[str]:
        if not all(re.fullmatch(r"(header|body):[\w.-]+", place) for place in places):
            raise ValueError("write header:NAME or body:NAME.NAME")
        return places


class Settings(Section):
    """A whole configuration file."""

    version: Literal[1] = 1
    """Version of the file's form."""
    evaluation: PromptGuardConfig = PromptGuardConfig()
    """Evaluation of one prompt."""
    conversation: ControllerConfig = ControllerConfig()
    """Following a conversation."""
    service: ServiceConfig = ServiceConfig()
    """The HTTP service."""


def load_settings(path: str | Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """Read settings from `path`, else from where they are found (see `promptguard.settings`).

    Variables such as PROMPTGUARD_CONVERSATION__PRESET override the file. Raises ConfigError that
    names file or variable, section and setting.
    """
    source = read_source(path, os.environ if env is None else env)
    try:
        return Settings(**source.values)
    except ConfigError as error:
        raise ConfigError(f"{source.where}: {error}") from None


def config_hash(config: BaseModel) -> str:
    """Return a short hash that is equal exactly for equal configurations."""
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16]
