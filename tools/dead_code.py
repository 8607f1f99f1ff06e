"""Finds code that nothing uses: `python -m tools.dead_code`.

Runs vulture over the package with those that call it. Fields and enum members are left out: they
are read by name from templates, JSON and TOML, which vulture cannot see. What a framework calls is
excepted by decorator or name in `[tool.dead_code]` of pyproject.toml, the rest in vulture_allow.py.
Tests do not count as users: code that only a test calls is dead.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Print every unused name; 1 if there is any."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["dead_code"]
    found = Vulture(
        ignore_names=options["ignore_names"], ignore_decorators=options["ignore_decorators"]
    )
    found.scavenge([ROOT / path for path in options["paths"]])
    unused = [item for item in found.get_unused_code() if is_reported(item)]
    for item in unused:
        place = Path(item.filename).relative_to(ROOT)
        print(f"{place}:{item.first_lineno}: {item.typ} {item.name} is not used.")
    return 1 if unused else 0


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
