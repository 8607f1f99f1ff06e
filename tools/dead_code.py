"""Finds code that nothing uses: `python -m tools.dead_code`.

Runs vulture over the package with those that call it. A name that a template uses or that the
documentation shows as code is used. Fields and enum members are left out: they are read by name
from JSON and TOML, which vulture cannot see. What a framework calls is excepted by decorator, name
or folder in `[tool.dead_code]` of pyproject.toml, the rest in vulture_allow.py; a name there that
is used after all is reported, so that the list stays short. Tests do not count as users: code that
only a test calls is dead.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

ROOT = Path(__file__).parents[1]
ALLOWED = ROOT / "vulture_allow.py"


def main() -> int:
    """Print every unused name and every exception without need; 1 if there is any."""
    allowed = allowed_names(ALLOWED.read_text("utf-8"))
    found = unused()
    faults = [said_of(item) for item in found if item.name not in allowed]
    needless = sorted(allowed - {item.name for item in found})
    faults += [f"{ALLOWED.name}: {name} is used or gone; delete it." for name in needless]
    print("\n".join(faults) or "Everything is used.")
    return 1 if faults else 0


def unused() -> list[Item]:
    """Return what vulture finds unused, without what is not reported."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["dead_code"]
    vulture = Vulture(
        ignore_names=options["ignore_names"], ignore_decorators=options["ignore_decorators"]
    )
    vulture.scavenge([ROOT / path for path in options["paths"]])
    shown = names_in_templates() | names_in_documentation()
    called = tuple(ROOT / path for path in options["called_by_frameworks"])
    return [
        item
        for item in vulture.get_unused_code()
        if is_reported(item)
        and item.name not in shown
        and not any(Path(item.filename).is_relative_to(folder) for folder in called)
    ]


def names_in_templates() -> set[str]:
    """Return every name between the braces of a template."""
    texts = [path.read_text("utf-8") for path in (ROOT / "src").rglob("templates/*.*")]
    actions = [found for text in texts for found in re.findall(r"\{[{%](.*?)[%}]\}", text, re.S)]
    return {name for action in actions for name in re.findall(r"\w+", action)}


def names_in_documentation() -> set[str]:
    """Return every name in a Python block or a code span of the documentation."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = [page.read_text("utf-8") for page in pages]
    code = [c for text in texts for c in re.findall(r"```python\n.*?```|`[^`\n]+`", text, re.S)]
    return {name for part in code for name in re.findall(r"\w+", part)}


def allowed_names(source: str) -> set[str]:
    """Return the names listed in the file of exceptions."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def said_of(item: Item) -> str:
    """Return the line that is printed of an unused name."""
    place = Path(item.filename).relative_to(ROOT)
    return f"{place}:{item.first_lineno}: {item.typ} {item.name} is not used."


def is_reported(item: Item) -> bool:
    """Whether it is ours and neither a field nor an enum member nor another library's attribute."""
    if not Path(item.filename).is_relative_to(ROOT / "src"):
        return False
    if item.typ == "variable":
        line = Path(item.filename).read_text("utf-8").splitlines()[item.first_lineno - 1]
        # Indented, it is a field or a member, which is read by name from data files.
        return not line.startswith(" ")
    return item.typ != "attribute"


if __name__ == "__main__":
    sys.exit(main())
