"""`rekindle keys`: create, list and revoke API keys of the current project."""

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.text import Text

from contract.choices import Scope
from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.job_lookup import list_items
from rekindle.cli.tables import new_table

Json = dict[str, Any]
KEYS = "/api_keys"


def create_key(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the key, for example its owner or purpose."),
    ],
    scope: Annotated[Scope, typer.Option(help="Permissions of the key.")] = Scope.WRITE,
    days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="Days until the key expires; default: as your key."),
    ] = None,
) -> None:
    """Create an API key with at most your permissions. It is shown only once."""
    request: Json = {"name": name, "scope": scope.value}
    if days is not None:
        request["expires_at"] = round(time.time()) + days * 86_400
    created = cli.client.post(KEYS, request, tries=1)
    cli.print_result(created, lambda: [str(created["key"])])
    cli.print_note(f"{created['id']}: save the key now; it cannot be shown again.")


def list_keys(cli: Cli) -> None:
    """List the project's API keys; only the last characters are shown."""
    listed = list_items(cli.client, KEYS)
    cli.print_result({"object": "list", "data": listed, "has_more": False}, lambda: _table(listed))


def revoke_key(
    cli: Cli,
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="Key id from `keys list`.")],
) -> None:
    """Revoke an API key permanently. Jobs that it created continue."""
    deleted = cli.client.delete(f"{KEYS}/{key_id}")
    cli.print_result(deleted, lambda: [f"revoked {key_id}"])


def _table(listed: list[Json]) -> Iterable[Any]:
    if not listed:
        yield "No keys."
        return
    columns = ("ends in", "scope", "age", "made by", "last use", "expires in")
    table = new_table("id", "name", *columns, no_wrap=("id", *columns))
    now = time.time()
    for key in listed:
        table.add_row(
            key["id"],
            Text(formats.printable_line(key.get("name", ""))),
            key.get("hint", ""),
            key.get("scope", formats.DASH),
            formats.duration(now - key["created_at"]),
            key.get("created_by") or formats.DASH,
            formats.time_since(key.get("last_used_at"), now),
            formats.duration(end - now) if (end := key.get("expires_at")) else "never",
        )
    yield table
