"""Writes docs/licences.md: whose work is in what we ship, and under which terms.

`python -m tools.licences`. Packages are those of requirements/image.txt, read from their installed
metadata; model and data come from the model's manifest and training/sources.toml.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
LOCK = ROOT / "requirements" / "image.txt"
MODEL = ROOT / "src" / "promptguard" / "data" / "model" / "manifest.json"
SOURCES = ROOT / "training" / "sources.toml"
_HEAD = """# Licences

<!-- Written by `make licences`; do not edit. -->

promptguard itself, its rules, prompts, scenarios and the texts in `training/corpus` are Apache-2.0.
This page lists the work of others: what is installed with it, what the embedded model was made of,
and what it was trained on. `make sbom` writes the packages as CycloneDX to `artifacts/sbom.json`.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} lists {len(locked(LOCK.read_text('utf-8')))} packages.")


def page() -> str:
    """Return the whole page."""
    manifest = json.loads(MODEL.read_text("utf-8"))
    sources = tomllib.loads(SOURCES.read_text("utf-8"))
    return "\n".join((_HEAD, packages_part(LOCK.read_text("utf-8")), model_part(manifest, sources)))


def packages_part(lock: str) -> str:
    """Return the table of packages of a lock."""
    rows = [
        f"| {name} | {version} | {licence_of(metadata.metadata(name))} |"
        for name, version in locked(lock)
    ]
    return "\n".join(
        ("## Packages", "", "| package | version | licence |", "|---|---|---|", *rows, "")
    )


def model_part(manifest: dict[str, object], sources: dict[str, dict[str, dict[str, str]]]) -> str:
    """Return base and training data of the embedded model.

    Raises KeyError where the manifest names public data whose licence is not on record.
    """
    data, bases = manifest["data"], manifest["base"]
    assert isinstance(data, dict)
    assert isinstance(bases, dict)
    public = sorted(name for name in data if not name.lstrip("(").startswith("authored"))
    trained = [(name, data[name], sources["data"][name]) for name in public]
    lines = [
        "## Embedded model\n",
        f"{manifest['name']} {manifest['version']}, {manifest['license']}, made from:\n",
        "| reader | base | licence of the base |",
        "|---|---|---|",
        *(
            f"| {reader} | {base} | {_base_licence(base, sources)} |"
            for reader, base in bases.items()
        ),
        "",
        "Trained on the texts written for this project, and on these public records, of which no",
        "text is in the repository or the package:\n",
        "| source | records | origin | licence |",
        "|---|--:|---|---|",
        *(f"| {n} | {count} | {s['origin']} | {s['licence']} |" for n, count, s in trained),
        "\nPairs of sentences that aligned the languages:\n",
        "| source | origin | licence |",
        "|---|---|---|",
        *(f"| {n} | {s['origin']} | {s['licence']} |" for n, s in sources["parallel"].items()),
        "",
    ]
    return "\n".join(lines)


def _base_licence(base: str, sources: dict[str, dict[str, dict[str, str]]]) -> str:
    """Return the licence of the base that a description names."""
    return next(item["licence"] for name, item in sources["bases"].items() if name in base)


def locked(lock: str) -> list[tuple[str, str]]:
    """Return names and versions of a lock, in order."""
    return re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, flags=re.MULTILINE)


def licence_of(package: metadata.PackageMetadata) -> str:
    """Return what a package says of its licence: an expression, a name, or its classifiers."""
    stated = package.get("License-Expression") or package.get("License") or ""
    classified = [
        line.rpartition(" :: ")[2]
        for line in package.get_all("Classifier") or ()
        if line.startswith("License :: ") and line.count(" :: ") > 1
    ]
    # Some packages put the whole text of their licence into the field.
    is_name = 0 < len(stated) <= 60 and "\n" not in stated
    return stated if is_name else ", ".join(classified) or "see the package"


if __name__ == "__main__":
    main()
