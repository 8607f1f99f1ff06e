"""Finds code written twice: `python -m tools.duplicates`.

Two places with the same twelve consecutive lines of code count as duplicates. Blank lines,
comments, docstrings and imports do not count: those repeat for good reasons. A pair of files may
be excepted in `[tool.duplicates]` of pyproject.toml; an exception that is no longer needed is
reported too, so that the list stays short.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of code without its indentation."""

    file: str
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A run of lines that stands in two places."""

    first: Line
    second: Line
    length: int

    @property
    def files(self) -> frozenset[str]:
        """The one or two files it stands in."""
        return frozenset((self.first.file, self.second.file))

    def __str__(self) -> str:
        first, second = self.first, self.second
        return f"{first.file}:{first.number} = {second.file}:{second.number}: {self.length} lines"


def main() -> int:
    """Print what is not excepted; 1 if there is any."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["duplicates"]
    files = sorted(path for name in options["paths"] for path in (ROOT / name).rglob("*.py"))
    found = duplicates(
        [code_lines(str(file.relative_to(ROOT)), file.read_text("utf-8")) for file in files],
        options["lines"],
    )
    allowed = {frozenset(pair) for pair in options["allow"]}
    faults = [str(item) for item in found if item.files not in allowed]
    unused = allowed - {item.files for item in found}
    faults += [f"The exception for {' and '.join(sorted(pair))} is not needed." for pair in unused]
    print("\n".join(faults) or f"{len(files)} files hold nothing twice.")
    return 1 if faults else 0


def code_lines(file: str, source: str) -> list[Line]:
    """Return the lines that count."""
    skipped = set(_skipped(ast.parse(source)))
    return [
        Line(file=file, number=number, text=text)
        for number, line in enumerate(source.splitlines(), 1)
        if (text := line.strip()) and not text.startswith("#") and number not in skipped
    ]


def duplicates(files: Iterable[Sequence[Line]], length: int) -> list[Duplicate]:
    """Return every longest run of at least `length` lines that stands in two places."""
    places: dict[tuple[str, ...], list[tuple[Sequence[Line], int]]] = defaultdict(list)
    for lines in files:
        for start in range(len(lines) - length + 1):
            window = tuple(line.text for line in lines[start : start + length])
            places[window].append((lines, start))
    return [
        Duplicate(first=one[i], second=other[j], length=_shared(one, i, other, j))
        for found in places.values()
        # Each with the next only: of three places two pairs say enough.
        for (one, i), (other, j) in pairwise(found)
        # A run that overlaps itself, as in a table of like rows, is not written twice.
        if not _continues(one, i, other, j) and not (one is other and j - i < length)
    ]


def _skipped(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _continues(one: Sequence[Line], i: int, other: Sequence[Line], j: int) -> bool:
    """Whether a run that begins here is the rest of one that begins before."""
    return i > 0 and j > 0 and one[i - 1].text == other[j - 1].text


def _shared(one: Sequence[Line], i: int, other: Sequence[Line], j: int) -> int:
    length = 0
    for first, second in zip(one[i:], other[j:], strict=False):
        if first.text != second.text:
            break
        length += 1
    return length


if __name__ == "__main__":
    sys.exit(main())
