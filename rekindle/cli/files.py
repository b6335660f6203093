"""`rekindle files`: what was uploaded to train on."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rekindle.cli import job_view, words
from rekindle.cli.choose import pages
from rekindle.cli.command import Cli
from rekindle.cli.upload import FILES, upload

Json = dict[str, Any]
FileArgument = Annotated[str, typer.Argument(metavar="FILE_ID", help="As `files list` shows it.")]


def list_files(
    cli: Cli,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")
    ] = 20,
) -> None:
    """Your files, newest first."""
    found = pages(cli.client, FILES, limit + 1)
    shown, more = found[:limit], len(found) > limit
    document = {"object": "list", "data": shown, "has_more": more}
    cli.show(document, lambda: _table(shown, time.time()))


def show_file(cli: Cli, file: FileArgument) -> None:
    """One file, and every line that the service wonders about."""
    shown = cli.client.get(f"{FILES}/{file}")
    cli.show(shown, lambda: _file(shown))


def upload_file(
    cli: Cli,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="One chat, or preference, a line.")],
) -> None:
    """Upload a file without training on it yet."""
    kept = upload(cli, path)
    cli.show(kept, lambda: [kept["id"], f"Next: rekindle submit {kept['id']} --model MODEL"])


def delete_file(cli: Cli, file: FileArgument) -> None:
    """Delete a file that no live job needs."""
    gone = cli.client.delete(f"{FILES}/{file}")
    cli.show(gone, lambda: [f"{file} is deleted"])


def _table(files: list[Json], now: float) -> Iterable[Any]:
    if not files:
        yield "No files. Upload one: rekindle files upload FILE"
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("file", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("format", no_wrap=True)
    for name in ("size", "examples", "warnings", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for file in files:
        counts = words.part(file, "counts")
        table.add_row(
            file["id"],
            Text(words.safe(file.get("filename", words.NOTHING))),
            Text(words.safe(file.get("format") or words.NOTHING)),
            words.size(file.get("bytes")),
            words.number(counts.get("examples", file.get("examples"))),
            words.number(counts.get("warnings")),
            words.duration(now - file["created_at"]),
        )
    yield table


def _file(file: Json) -> Iterable[Any]:
    counts = words.part(file, "counts")
    yield job_view.facts(
        [
            ("file", file["id"]),
            ("name", words.safe(file.get("filename", words.NOTHING))),
            ("status", str(file.get("status", words.NOTHING))),
            ("format", words.safe(file.get("format") or words.NOTHING)),
            ("size", words.size(file.get("bytes"))),
            ("examples", words.number(counts.get("examples", file.get("examples")))),
            ("tokens", f"about {words.number(counts.get('tokens'))}"),
            ("uploaded", words.clock(file.get("created_at"), day=True)),
        ]
    )
    for warning in file.get("warnings") or []:
        where = f"line {warning['line']}: " if warning.get("line") else ""
        yield Text(f"{where}{words.safe(warning.get('message', ''))}", style="yellow")
