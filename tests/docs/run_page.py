"""Runs the Python blocks that come as JSON on standard input, in one namespace, in order."""

import ast
import asyncio
import inspect
import json
import sys


def main() -> None:
    """Run every block; a block may wait at its top level, as in `python -m asyncio`."""
    names: dict[str, object] = {"__name__": "__main__"}
    loop = asyncio.new_event_loop()
    for place, code in json.load(sys.stdin):
        compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(compiled, names)
        if inspect.iscoroutine(waiting):
            loop.run_until_complete(waiting)
    loop.close()


if __name__ == "__main__":
    main()
