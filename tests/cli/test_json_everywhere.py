"""Every command that prints data prints it as JSON on request."""

from __future__ import annotations

from collections.abc import Iterator

import click

from promptguard.cli import cli

# A dialogue, a server whose log is JSON, and a command that prints JSON only.
_WITHOUT = {"chat", "serve", "sessions export"}


def commands(found: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(found, click.Group):
        yield name.strip(), found
        return
    context = click.Context(found)
    for each in found.list_commands(context):
        inner = found.get_command(context, each)
        assert inner is not None
        yield from commands(inner, f"{name} {each}")


def test_every_command_that_prints_data_has_the_option() -> None:
    """Only those named above are without it."""
    without = {
        name
        for name, command in commands(cli)
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == _WITHOUT
