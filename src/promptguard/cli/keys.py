"""`promptguard keys`: API keys for the service, of which only hashes are stored."""

from __future__ import annotations

import json

import click

from promptguard.cli.service_checks import service_extra
from promptguard.cli.stored import config_option, json_option
from promptguard.config import KeyConfig, load_settings

_SCOPES = ("guard", "read", "admin")


@click.group()
def keys() -> None:
    """Make API keys and look at those configured."""


@keys.command()
@click.option("--name", required=True, help="Name in logs and audits; sessions are bound to it.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    default=("guard",),
    show_default=True,
    help="What the key may do; repeatable.",
)
@click.option("--tenant", default="default", show_default=True, help="Whose sessions it sees.")
@click.option("--requests-per-minute", default=600, show_default=True, help="Rate limit.")
@json_option
def new(
    name: str, scopes: tuple[str, ...], tenant: str, requests_per_minute: int, as_json: bool
) -> None:
    """Make a key. It is printed once; the configuration gets its hash."""
    # Before a key is made: one that is printed and then not configured is of no use.
    with service_extra():
        from promptguard.service.auth import key_hash, new_key
    key = new_key()
    entry = KeyConfig.model_validate(
        {
            "name": name,
            "sha256": key_hash(key),
            "scopes": tuple(dict.fromkeys(scopes)),
            "tenant": tenant,
            "requests_per_minute": requests_per_minute,
        }
    )
    if as_json:
        body = {"key": key, "entry": entry.model_dump(mode="json")}
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    # The key alone on standard output, so that it can be piped where it belongs.
    click.echo(key)
    click.echo("\nThis key is not shown again. Put its hash into the configuration:\n", err=True)
    click.echo("service:\n  keys:", err=True)
    click.echo(
        f'    - {{name: "{entry.name}", sha256: {entry.sha256}, '
        f'scopes: [{", ".join(entry.scopes)}], tenant: "{entry.tenant}", '
        f"requests_per_minute: {entry.requests_per_minute}}}",
        err=True,
    )


@keys.command("list")
@config_option
@json_option
def list_keys(config_file: str | None, as_json: bool) -> None:
    """List the configured keys, without their hashes."""
    configured = load_settings(config_file).service.keys
    if as_json:
        # A list of keys may be shown around, and a weak key could be guessed from its hash.
        shown = [key.model_dump(mode="json", exclude={"sha256"}) for key in configured]
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    if not configured:
        click.echo("No keys: the service answers only programs on this machine.")
    for key in configured:
        scopes = ",".join(key.scopes)
        click.echo(f"{key.name}\t{key.tenant}\t{scopes}\t{key.requests_per_minute}/min")
