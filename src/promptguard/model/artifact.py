"""The model's files: where they are, what the manifest says, whether they are intact."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from promptguard.errors import ModelError
from promptguard.model.calibration import Platt

OUTPUTS = ("attack", "manipulative", "extractive", "harmful")


class Fit(BaseModel):
    """One fitted scale and shift."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    scale: float
    shift: float


class Manifest(BaseModel):
    """What `manifest.json` beside the weights says."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    version: str
    license: str
    base: str
    sha256: dict[str, str]
    calibration: dict[str, Fit]
    thresholds: dict[str, float]
    data: dict[str, int]

    @property
    def identity(self) -> str:
        """Name, version, and what tells these files from others of that version."""
        hashes = "".join(self.sha256[name] for name in sorted(self.sha256))
        return f"{self.name} {self.version} {hashlib.sha256(hashes.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A folder with `model.onnx`, `tokenizer.json`, `word_pairs.npz` and `manifest.json`."""

    folder: Path
    manifest: Manifest

    def platt(self, output: str) -> Platt:
        """Return the calibration of one output."""
        fit = self.manifest.calibration[output]
        return Platt(fit.scale, fit.shift)

    def damaged(self) -> tuple[str, ...]:
        """Return the names of files that are missing or differ from the manifest."""
        return tuple(
            name
            for name, expected in self.manifest.sha256.items()
            if not (self.folder / name).is_file()
            or hashlib.sha256((self.folder / name).read_bytes()).hexdigest() != expected
        )


@cache
def bundled() -> Artifact:
    """Return the model that ships with the package."""
    return open_artifact(Path(str(files("promptguard") / "data" / "model")))


def open_artifact(folder: Path) -> Artifact:
    """Read the manifest in `folder`; raises ModelError with what to do."""
    try:
        body = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return Artifact(folder=folder, manifest=Manifest.model_validate(body))
    except OSError:
        raise ModelError(
            f"No model in {folder}; reinstall promptguard, or name another judge with --model."
        ) from None
    except (ValueError, ValidationError):
        raise ModelError(f"The manifest in {folder} is broken; reinstall promptguard.") from None
