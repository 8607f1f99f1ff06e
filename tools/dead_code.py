"""Finds code that nothing uses: `python -m tools.dead_code`.

Runs vulture over the package with those that call it. Fields and enum members are left out: they
are read by name from templates, JSON and TOML, which vulture cannot see. What a framework calls is
excepted by decorator or name in `[tool.dead_code]` of pyproject.toml, the rest in vulture_allow.py;
a name there that is used after all is reported, so that the list stays short. Tests do not count as
users: code that only a test calls is dead.
"""

from __future__ import annotations

import ast
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
    return [item for item in vulture.get_unused_code() if is_reported(item)]


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
        return not line.startswith(" ")
    return item.typ != "attribute"


if __name__ == "__main__":
    sys.exit(main())
