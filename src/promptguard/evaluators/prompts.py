"""The evaluation types: versioned texts, their manifest, and trial cases for them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from promptguard.core.decision import Label
from promptguard.core.layers import LayerPriority
from promptguard.errors import ConfigError, DataError
from promptguard.registry import Registry

TRUSTED_TYPE = "trusted_layer_coherence"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPrompt:
    """One way to look at a layer: what the judge is asked, and for which layers.

    `finds` is what a violation of this type is called.
    """

    name: str
    version: str
    text: str
    applies_to: tuple[LayerPriority, ...] = (LayerPriority.USER,)
    finds: Label = Label.MANIPULATIVE

    @property
    def sha256(self) -> str:
        """Hash of the text."""
        return prompt_hash(self.text)


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    sha256: str
    applies_to: tuple[str, ...]
    finds: Label = Label.MANIPULATIVE

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.md"


class _Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    frame: _Entry
    evaluation_types: tuple[_Entry, ...]


class TrialCase(BaseModel):
    """One prompt whose judgement is beyond dispute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    is_attack: bool
    system: str
    user: str


def evaluation_prompt(name: str) -> EvaluationPrompt:
    """Return the evaluation type called `name`, or one version of it as `name@version`.

    ConfigError names the known ones.
    """
    kind, _, version = name.partition("@")
    # A candidate text is registered under a name with an @ in it.
    if not version or name in evaluation_prompts():
        return evaluation_prompts().get(name)
    known = {prompt.version: prompt for prompt in shipped_versions() if prompt.name == kind}
    if version not in known:
        there = ", ".join(known) or "none"
        raise ConfigError(f"There is no version {version} of {kind}; known: {there}.")
    return known[version]


def user_prompt(name: str) -> EvaluationPrompt:
    """Return an evaluation type that looks at user layers; ConfigError for any other."""
    prompt = evaluation_prompt(name)
    if LayerPriority.USER not in prompt.applies_to:
        raise ConfigError(
            f"Evaluation type {name!r} is for trusted layers and is used there by itself; "
            "choose another for the user's."
        )
    return prompt


@cache
def evaluation_prompts() -> Registry[EvaluationPrompt]:
    """Return every evaluation type; texts of your own are registered here."""
    registry: Registry[EvaluationPrompt] = Registry("evaluation type")
    for prompt in read_prompts(shipped_prompts()):
        registry.register(prompt.name)(prompt)
    return registry


@cache
def frame() -> EvaluationPrompt:
    """Return the text around every evaluation type: data rules and form of the answer."""
    return _read(shipped_prompts(), _manifest(shipped_prompts()).frame)


def shipped_prompts() -> Traversable:
    """Return the folder of the shipped manifest and texts."""
    return files("promptguard").joinpath("data", "prompts")


def read_prompts(folder: Traversable) -> tuple[EvaluationPrompt, ...]:
    """Read the evaluation types of a folder, each in its current version.

    Raises DataError where a text is missing or differs from what its manifest says.
    """
    return tuple({prompt.name: prompt for prompt in read_versions(folder)}.values())


def read_versions(folder: Traversable) -> tuple[EvaluationPrompt, ...]:
    """Read every version that the manifest lists; the last one of a name is the current one."""
    return tuple(_read(folder, entry) for entry in _manifest(folder).evaluation_types)


@cache
def shipped_versions() -> tuple[EvaluationPrompt, ...]:
    """Return every shipped version of every evaluation type."""
    return read_versions(shipped_prompts())


def trial_cases() -> tuple[TrialCase, ...]:
    """Return the shipped cases."""
    raw = shipped_prompts().joinpath("cases.json").read_text(encoding="utf-8")
    try:
        return _CASES.validate_json(raw)
    except ValidationError as error:
        raise DataError(f"The trial cases are broken (faults: {error.error_count()}).") from None


def prompt_hash(text: str) -> str:
    """Return the hash by which the manifest knows a text; line ends do not matter."""
    return hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()


def _manifest(folder: Traversable) -> _Manifest:
    try:
        raw = folder.joinpath("manifest.json").read_text(encoding="utf-8")
        return _Manifest.model_validate_json(raw)
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise DataError(f"The prompt manifest is missing or broken: {error}.") from None


def _read(folder: Traversable, entry: _Entry) -> EvaluationPrompt:
    try:
        text = folder.joinpath(entry.file).read_text(encoding="utf-8")
    except OSError:
        raise DataError(f"The manifest lists {entry.file}, which is missing.") from None
    except UnicodeDecodeError:
        raise DataError(f"{entry.file} is not UTF-8 text; restore it.") from None
    if prompt_hash(text) != entry.sha256:
        raise DataError(
            f"{entry.file} differs from its manifest; a changed text needs a new version: "
            "a new file name, a new version and its sha256 in manifest.json."
        )
    return EvaluationPrompt(
        name=entry.name,
        version=entry.version,
        text=text.strip(),
        applies_to=tuple(_priority(entry, name) for name in entry.applies_to),
        finds=entry.finds,
    )


def _priority(entry: _Entry, name: str) -> LayerPriority:
    try:
        return LayerPriority[name.upper()]
    except KeyError:
        raise DataError(f"{entry.name} applies to an unknown layer; see the manifest.") from None


_CASES: TypeAdapter[tuple[TrialCase, ...]] = TypeAdapter(tuple[TrialCase, ...])
