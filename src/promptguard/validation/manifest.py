"""What a run was made of: data, versions and settings, so that it can be made again."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from promptguard.config import ControllerConfig, config_hash
from promptguard.errors import ModelError
from promptguard.model.artifact import bundled
from promptguard.risk.weights import load_weights, shipped_weights
from promptguard.runs.report import Configured, Manifest
from promptguard.validation.contenders import Contender
from promptguard.validation.dataset import Dataset

_PACKAGES = ("promptguard", "numpy", "onnxruntime", "tokenizers")


def manifest_of(dataset: Dataset, contenders: Sequence[Contender], *, seed: int) -> Manifest:
    """Return the manifest of a run that is about to begin."""
    return Manifest(
        files=dataset.files,
        cases=_cases_hash(dataset),
        seed=seed,
        contenders=tuple(_configured(contender) for contender in contenders),
        model=_model(),
        versions=tuple((name, _version(name)) for name in _PACKAGES),
        python=platform.python_version(),
    )


def _cases_hash(dataset: Dataset) -> str:
    """Return a hash of which cases were taken, in their order."""
    digest = hashlib.sha256()
    for case in dataset.cases:
        digest.update(f"{case.index}:{case.id}:{case.label}\n".encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def _configured(contender: Contender) -> Configured:
    settings = contender.settings
    weights = ""
    if isinstance(settings, ControllerConfig):
        used = load_weights(Path(settings.weights)) if settings.weights else shipped_weights()
        weights = f"{used.version} ({used.fitted_on})"
    return Configured(
        name=contender.name,
        sha256=config_hash(settings),
        settings=settings.model_dump_json(),
        weights=weights,
    )


def _model() -> str:
    try:
        return bundled().manifest.identity
    except ModelError:
        return "none"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
