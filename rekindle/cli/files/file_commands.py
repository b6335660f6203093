"""`rekindle files`: list, show, upload and delete training files."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.files.upload import FILES, upload_training_file
from rekindle.cli.job_lookup import list_items
from rekindle.cli.jobs import views
from rekindle.cli.tables import new_table

Json = dict[str, Any]
FileArgument = Annotated[str, typer.Argument(metavar="FILE_ID", help="File id from `files list`.")]


def list_files(
    cli: Cli,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of files.")
    ] = 20,
) -> None:
    """List your files, newest first."""
    listed = list_items(cli.client, FILES, limit + 1)
    files, has_more = listed[:limit], len(listed) > limit
    document = {"object": "list", "data": files, "has_more": has_more}
    cli.print_result(document, lambda: _table(files, time.time()))


def show_file(cli: Cli, file: FileArgument) -> None:
    """Show a file and its warnings."""
    details = cli.client.get(f"{FILES}/{file}")
    cli.print_result(details, lambda: _file_lines(details))


def upload_file(
    cli: Cli,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL file, one example per line.")],
) -> None:
    """Upload a file without training on it."""
    uploaded = upload_training_file(cli, path)
    cli.print_result(
        uploaded, lambda: [uploaded["id"], f"Next: rekindle submit {uploaded['id']} --model MODEL"]
    )


def delete_file(cli: Cli, file: FileArgument) -> None:
    """Delete a file that no unfinished job needs."""
    deleted = cli.client.delete(f"{FILES}/{file}")
    cli.print_result(deleted, lambda: [f"deleted {file}"])


def _table(files: list[Json], now: float) -> Iterable[Any]:
    if not files:
        yield "No files. Upload one: rekindle files upload FILE"
        return
    numbers = ("size", "examples", "warnings", "age")
    no_wrap = ("file", "format", *numbers)
    table = new_table("file", "name", "format", *numbers, right=numbers, no_wrap=no_wrap)
    for file in files:
        counts = formats.object_member(file, "counts")
        table.add_row(
            file["id"],
            Text(formats.printable_line(file.get("filename", formats.DASH))),
            Text(formats.printable_line(file.get("format") or formats.DASH)),
            formats.size(file.get("bytes")),
            formats.number(counts.get("examples", file.get("examples"))),
            formats.number(counts.get("warnings")),
            formats.duration(now - file["created_at"]),
        )
    yield table


def _file_lines(file: Json) -> Iterable[Any]:
    counts = formats.object_member(file, "counts")
    yield views.facts_table(
        [
            ("file", file["id"]),
            ("name", formats.printable_line(file.get("filename", formats.DASH))),
            ("status", str(file.get("status", formats.DASH))),
            ("format", formats.printable_line(file.get("format") or formats.DASH)),
            ("size", formats.size(file.get("bytes"))),
            ("examples", formats.number(counts.get("examples", file.get("examples")))),
            ("tokens", f"about {formats.number(counts.get('tokens'))}"),
            ("uploaded", formats.local_time(file.get("created_at"), day=True)),
        ]
    )
    for warning in file.get("warnings") or []:
        where = f"line {warning['line']}: " if warning.get("line") else ""
        yield Text(f"{where}{formats.printable_line(warning.get('message', ''))}", style="yellow")
