"""The model's files: where they are, what the manifest says, whether they are intact."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from promptguard.errors import ModelError
from promptguard.model.network import Calibration

MESSAGE_OUTPUTS = ("attack", "manipulative", "extractive", "harmful")
CONTEXT_OUTPUTS = ("turn", "session")
PACKED, GLOSSARY = "thorough.npz", "gloss.npz"
OUTPUTS = (*MESSAGE_OUTPUTS, *CONTEXT_OUTPUTS, "document")


class GlossBlend(BaseModel):
    """How a text and its gloss in English are read together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float = Field(ge=0.0, le=1.0)
    """Of the logits, that the gloss has."""
    scale: float = Field(gt=0.0)
    """Of the logits of a text that has a gloss: what the readers know less well they read too
    timidly, to either side."""
    from_logit: float
    """Of the quick reader's own reading: below it no gloss could make an attack of the text."""


class Manifest(BaseModel):
    """What `manifest.json` beside the weights says.

    `thresholds` are the probabilities that 2 % of held-out innocent text exceeds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    version: str
    license: str
    base: dict[str, str]
    sha256: dict[str, str]
    calibration: dict[str, Calibration]
    thresholds: dict[str, float]
    data: dict[str, int]
    gloss: GlossBlend | None = None

    @property
    def identity(self) -> str:
        """Name, version, and what tells these files from others of that version."""
        hashes = "".join(self.sha256[name] for name in sorted(self.sha256))
        return f"{self.name} {self.version} {hashlib.sha256(hashes.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A folder with the files that `manifest.json` lists.

    `quick.onnx`, `tokenizer.json` and `word_pairs.npz` always, `thorough.onnx` and mostly its
    packed weights `thorough.npz` where the thorough reader is installed, and `gloss.npz` where
    texts in other languages are glossed for both.
    """

    folder: Path
    manifest: Manifest

    @property
    def has_thorough(self) -> bool:
        """Whether the thorough reader is part of these files."""
        return "thorough.onnx" in self.manifest.sha256

    def checked(self, name: str) -> Path:
        """Return a file's path; raises ModelError where its content is not the manifest's."""
        path = self.folder / name
        try:
            # A changed file may load all the same, and would judge otherwise than it was measured.
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            digest = ""
        if digest != self.manifest.sha256.get(name):
            raise ModelError(
                f"The model file {name} is missing or damaged; run `promptguard model verify`."
            )
        return path

    def damaged(self) -> tuple[str, ...]:
        """Return the names of files that are missing or differ from the manifest."""
        bad = []
        for name in self.manifest.sha256:
            try:
                self.checked(name)
            except ModelError:
                bad.append(name)
        return tuple(bad)


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
            f"No model in {folder}; reinstall ayniguard, or name another judge with --model."
        ) from None
    except ValueError:  # pydantic's errors are such too
        raise ModelError(f"The manifest in {folder} is broken; reinstall ayniguard.") from None
