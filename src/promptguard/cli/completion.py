"""Completion in bash, which cuts words at colons and inserts what it is given as it is.

Session ids have colons, and may have blanks.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_BREAKS = ":="
_SPECIAL = re.compile(r"([^\w@%+=:,./-])")
_SPECIAL_IN_QUOTES = re.compile(r"([\\$`\"])")
_LAST_WORD = re.compile(r"(?:\\.|'[^']*'?|\"[^\"]*\"?|[^\s\\'\"])*\Z")

_SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:$COMP_POINT}" type value
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class LineComplete(BashComplete):
    """Completes the word before the cursor as the shell will read it."""

    source_template: ClassVar[str] = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one under the cursor, and that one."""
        # The whole line is split here: bash has already cut COMP_WORDS at colons.
        words = split_arg_string(os.environ["COMP_LINE"])
        return (words[1:-1], words[-1]) if _typed() else (words[1:], "")

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return type and value, escaped, without what bash takes for earlier words."""
        return f"{item.type},{_inserted(str(item.value), _typed())}"


def _inserted(value: str, typed: str) -> str:
    if typed.startswith("'"):
        return value.replace("'", r"'\''")
    if typed.startswith('"'):
        return _SPECIAL_IN_QUOTES.sub(r"\\\1", value)
    if typed.startswith("-"):
        typed = typed.partition("=")[2]
    # Bash replaces only what follows the last break, so the part before it is not repeated.
    kept = max(map(typed.rfind, _BREAKS)) + 1
    return _SPECIAL.sub(r"\\\1", value)[kept:]


def _typed() -> str:
    """Return the word under the cursor as it was typed."""
    found = _LAST_WORD.search(os.environ["COMP_LINE"])
    return found.group() if found else ""


def register() -> None:
    """Let click use it for bash."""
    add_completion_class(LineComplete)
