"""The locks agree with each other, hold hashes and no more than what they are for."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.licences import locked

ROOT = Path(__file__).parents[2]
LOCKS = {name: ROOT / "requirements" / f"{name}.txt" for name in ("dev", "run", "image")}


def versions(name: str) -> dict[str, str]:
    return dict(locked(LOCKS[name].read_text("utf-8")))


def test_what_runs_is_what_is_tested() -> None:
    """Each package of the small locks has the version of the development lock."""
    for name in ("run", "image"):
        assert versions(name).items() <= versions("dev").items()
    assert versions("run").items() <= versions("image").items()


def test_running_needs_no_tools() -> None:
    """No test, check, documentation or database package is installed by `make run`."""
    tools = {"pytest", "mypy", "ruff", "mkdocs", "playwright", "openai", "psycopg", "vulture"}
    assert not tools & set(versions("run"))
    assert tools <= set(versions("dev"))
    assert len(versions("run")) < 80


def test_direct_dependencies_are_locked() -> None:
    """Those of the package and of the extra `service`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["service"]
    for line in wanted:
        assert re.match(r"[\w-]+", line)[0] in versions("run"), line


@pytest.mark.parametrize(
    "lock", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.stem
)
def test_every_package_has_hashes_and_no_index_is_named(lock) -> None:
    """Whichever index is asked, only the locked files are accepted."""
    text = lock.read_text("utf-8")
    packages = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in package for package in packages)
    assert not re.search(r"--(?:extra-)?index-url|--find-links|--trusted-host|://", text)


def test_a_lock_is_installed_as_it_is() -> None:
    """Nothing is looked for beside it: a release of tomorrow would have no hash there."""
    files = (ROOT / "Makefile", ROOT / "deploy" / "Containerfile", ROOT / "docs" / "deployment.md")
    text = "\n".join(file.read_text("utf-8") for file in files).replace("\\\n", "")
    installs = [line for line in text.splitlines() if "--require-hashes" in line]
    by_pip = [line for line in installs if "pip-audit" not in line]
    assert len(by_pip) >= 6
    assert all("--no-deps" in line for line in by_pip)


def test_targets_named_in_the_documentation_exist() -> None:
    """Every `make x` on a page or in a root document."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, flags=re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for name in re.findall(r"`make ([a-z0-9-]+)", page.read_text("utf-8")):
            assert name in targets, f"{page.name}: make {name}"


def test_the_bill_of_materials_lists_the_image(tmp_path) -> None:
    """Every locked package with its hashes, as `make sbom` writes it."""
    recipe = re.search(r"^sbom:.*?\n\n", (ROOT / "Makefile").read_text("utf-8"), re.S | re.M)[0]
    command = re.search(r"cyclonedx-py (.+)", recipe.replace("\\\n", ""))[1].split()
    out = tmp_path / "sbom.json"
    command[command.index("--output-file") + 1] = str(out)
    tool = Path(sys.executable).with_name("cyclonedx-py")
    subprocess.run([tool, *command], cwd=ROOT, check=True, capture_output=True)
    listed = json.loads(out.read_text("utf-8"))
    found = {item["name"]: item for item in listed["components"]}
    assert {name: item["version"] for name, item in found.items()} == versions("image")
    assert all(item["externalReferences"][0]["hashes"] for item in found.values())
