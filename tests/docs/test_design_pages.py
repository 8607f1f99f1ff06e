"""The page on architecture describes the tree as it is."""

import re
import tomllib
from pathlib import Path

import pytest
from pages import DOCS, ROOT

PAGE = (DOCS / "design" / "architecture.md").read_text("utf-8")
SOURCE = ROOT / "src" / "promptguard"
WALK = re.findall(r"^\| \d+ \| `([\w/.]+)` \|", PAGE, flags=re.MULTILINE)


def test_the_walk_has_at_most_25_files() -> None:
    """Numbered from one, none twice."""
    assert 20 <= len(WALK) <= 25
    assert len(set(WALK)) == len(WALK)


@pytest.mark.parametrize("file", WALK)
def test_every_file_of_the_walk_exists(file) -> None:
    """Where the page says."""
    assert (SOURCE / file).is_file()


def test_what_is_to_be_touched_and_what_checks_it_exists() -> None:
    """Every path of the table, in the package or the repository."""
    table = PAGE.partition("## To change X")[2].partition("\n## ")[0]
    paths = re.findall(r"`([\w./<>-]*/[\w./<>-]*|[\w]+\.py)`", table)
    assert len(paths) > 30
    for path in paths:
        if "<" not in path:
            assert exists(path), path


def exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (SOURCE, ROOT))


def test_the_layers_are_those_that_are_checked() -> None:
    """Each line of the tree is a layer of the import contract, in the same order."""
    contract = (ROOT / "pyproject.toml").read_text("utf-8").partition("layers = [")[2]
    layers = contract.partition("]")[0].splitlines()
    rank = {name: at for at, line in enumerate(layers) for name in re.findall(r"\w+", line)}
    shown = PAGE.partition("```\n")[2].partition("```")[0]
    names = [name for line in shown.splitlines() for name in re.findall(r"\w+", left(line))]
    order = [rank[name] for name in names if name in rank]
    assert order == sorted(order)
    assert set(names) <= {path.stem for path in SOURCE.iterdir()}


def left(line: str) -> str:
    """Return the names of a line of the tree, without what is said of them."""
    return line.partition("  ")[0]


def test_hand_written_parts_exist() -> None:
    """Each part that dependencies.md gives a reason for is there."""
    page = (DOCS / "design" / "dependencies.md").read_text("utf-8").partition("## Written")[2]
    cells = re.findall(r"^\| (.+?) \|", page, flags=re.MULTILINE)[2:]
    assert all("`" in cell for cell in cells)
    for cell in cells:
        for path in re.findall(r"`([\w/.]+)`", cell):
            assert exists(path), path


def test_every_dependency_has_a_row() -> None:
    """Direct dependencies of the package, extras included."""
    page = (DOCS / "design" / "dependencies.md").read_text("utf-8")
    for name in direct_dependencies(ROOT / "pyproject.toml"):
        assert name in page, name


def direct_dependencies(file: Path) -> set[str]:
    project = tomllib.loads(file.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {re.match(r"[\w-]+", line)[0] for line in lines}


def test_every_test_that_the_seed_documents_name_exists() -> None:
    """A row of the table points at a test that can be run."""
    page = (DOCS / "design" / "seed-documents.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 20
    for path, name in named:
        assert re.search(rf"def {name}\(", (ROOT / path).read_text("utf-8")), name


def test_every_row_of_the_seed_documents_has_a_state() -> None:
    """It holds, or it is a limit with its reason."""
    page = (DOCS / "design" / "seed-documents.md").read_text("utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    for row in rows:
        assert len(row) == 3
        assert row[2].startswith(("holds", "limit: ")), row[0]
