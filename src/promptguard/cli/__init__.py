"""The `promptguard` command: one group, one file per subcommand, imported when it is used."""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback

import click

from promptguard import __version__
from promptguard.errors import PromptGuardError

# Scripts act on these codes, so an error must never end with one of the first three.
EXIT_ALLOW, EXIT_CAUTION, EXIT_BLOCK, EXIT_ERROR = 0, 1, 2, 3
EXIT_INTERRUPTED = 130
_COMPLETION = "_PROMPTGUARD_COMPLETE"
_NOT_WRITTEN = "the output cannot be written"
_COMMANDS = (
    *("calibrate", "chat", "check", "doctor", "explain", "keys", "model", "probe", "prompts"),
    *("replay", "rubric", "scan", "serve", "sessions", "tune", "validate"),
)
_HOMES = {"replay": "explain"}  # every other command has a file of its own name


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002  likewise
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        # Imported on use: no command waits for what another one needs.
        module = importlib.import_module(f"promptguard.cli.{_HOMES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
# The version is given: click would ask the installed packages, of which a checkout may have two.
@click.version_option(__version__, prog_name="promptguard")
def cli() -> None:
    """Guard conversations with language models."""


def main() -> None:
    """Run the command line; our own errors become one line on stderr and exit code 3."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Stored text may hold half a surrogate pair, which JSON can escape and no encoding write.
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        # A line that is typed or piped in may be in another encoding than the terminal's.
        sys.stdin.reconfigure(errors="replace")
    try:
        code = _exit_code()
        sys.stdout.flush()
    except OSError as error:
        # Python writes what is left once more when it ends, which must not fail again.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open to the end
        # A file that a command looks at has a name; the output has none.
        what = f"{error.filename} cannot be used" if error.filename else _NOT_WRITTEN
        click.echo(f"Error: {what}: {error.strerror}.", err=True)
        code = EXIT_ERROR
    except Exception:
        # A fault of ours; Python itself would end with 1, which here would mean caution.
        traceback.print_exc()
        code = EXIT_ERROR
    sys.exit(code)


def _exit_code() -> int:
    if _COMPLETION in os.environ:
        importlib.import_module("promptguard.cli.completion").register()
    try:
        # click's own codes, 1 and 2, would mean caution and block.
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = EXIT_ERROR
    except PromptGuardError as error:
        click.echo(f"Error: {error}", err=True)
        code = EXIT_ERROR
    except SystemExit as stop:
        # A reader that went away ends click with 1, which here would mean caution.
        code = EXIT_ERROR if stop.code else EXIT_ALLOW
    return code if isinstance(code, int) else EXIT_ALLOW
