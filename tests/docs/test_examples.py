"""The examples of the documentation do what the pages say.

Every Python block is run, page by page, in a process of its own; one that needs a package beside
ours says so in a comment above it (`<!-- needs langchain -->`) and is run where it is installed.
Shell blocks under `<!-- tested -->` are run too. Both find a guard where they expect one.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pages import PAGES, ROOT, Block, blocks_of

from benchmarks.servers import running_guard, running_upstream
from promptguard.config import Settings
from promptguard.scenarios import shipped_scenarios
from promptguard.state import DEMO_PREFIX

GUARD = "http://127.0.0.1:8787"
MODEL = "http://127.0.0.1:11434"
PYTHON_PAGES = [page for page in PAGES if blocks_of(page, "python")]
SHELL_PAGES = [
    page for page in PAGES if any(block.mark == "tested" for block in blocks_of(page, "sh"))
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A guard and a model for the examples, by the addresses the pages use."""
    folder = tmp_path_factory.mktemp("guard")
    with running_upstream() as model, running_guard(model, folder, store="memory:") as guard:
        yield {GUARD: guard, MODEL: model}


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_python_examples_run(page, addresses, tmp_path) -> None:
    """From top to bottom, as a reader would type them."""
    blocks = [block for block in blocks_of(page, "python") if has_what_it_needs(block)]
    given = json.dumps([(block.place, placed(block.code, addresses)) for block in blocks])
    runner = Path(__file__).with_name("run_page.py")
    done = run([sys.executable, str(runner)], tmp_path, given)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", SHELL_PAGES, ids=name_of)
def test_shell_examples_run(page, addresses, tmp_path) -> None:
    """One after the other in one folder; the first command that fails is an error."""
    for block in blocks_of(page, "sh"):
        if block.mark == "tested":
            script = placed(block.code, addresses)
            if "curl" in script and shutil.which("curl") is None:
                pytest.skip(f"{block.place} and what follows it need curl, which is not installed")
            done = run(["bash", "-euo", "pipefail", "-c", script], tmp_path, "")
            assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_settings_in_examples_are_accepted(page) -> None:
    """Every YAML block that shows a configuration can be loaded as one."""
    for block in blocks_of(page, "yaml"):
        shown = yaml.safe_load(block.code.replace("${", "$"))
        if set(shown) <= set(Settings.model_fields):
            Settings.model_validate(shown)


def test_json_examples_can_be_read() -> None:
    """On every page."""
    for block in (block for page in PAGES for block in blocks_of(page, "json")):
        json.loads(block.code)


def has_what_it_needs(block: Block) -> bool:
    """Whether the packages that a block names are installed."""
    needed = block.mark.removeprefix("needs ").split() if block.mark.startswith("needs ") else ()
    return all(importlib.util.find_spec(name) is not None for name in needed)


def placed(code: str, addresses: dict[str, str]) -> str:
    """Return the example with the addresses of the running servers."""
    for shown, real in addresses.items():
        code = code.replace(shown, real)
    return code


def run(command: list[str], folder: Path, given: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` with our command on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        input=given,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_demo_sessions_in_examples_are_stored_by_the_service(page) -> None:
    """A reader who has just started it can type them."""
    named = set(re.findall(r"promptguard explain (demo\S*)", page.read_text("utf-8")))
    assert named <= {DEMO_PREFIX + scenario.id for scenario in shipped_scenarios()}
