"""Upload a training file with a progress bar, and print the service's warnings."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.job_lookup import list_items

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]
FILES = "/files"
MAX_SINGLE_UPLOAD = 64 * 1024**2  # bytes; the largest part that the service takes
_SHOWN_WARNINGS = 3
_CHECK_SECONDS = 600.0  # for the service to check the rows after the last byte


class CountingReader:
    """A file that reports how many bytes were read."""

    def __init__(self, stream: BinaryIO, on_read: Callable[[int], object]) -> None:
        self._stream = stream
        self._on_read = on_read

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(size)
        self._on_read(len(data))
        return data

    def fileno(self) -> int:
        """Return the file descriptor; httpx reads the length from it."""
        return self._stream.fileno()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset; httpx starts from the beginning."""
        return self._stream.seek(offset, whence)


def upload_training_file(cli: Cli, path: Path, *, reuse: bool = False) -> Json:
    """Upload a file and return it; ``reuse`` reuses an upload with the same content."""
    require_training_file(path)
    name = path.name
    if reuse:
        name = _content_name(path)
        if (existing := _find_upload(cli, name)) is not None:
            cli.print_note(f"{path.name} is already uploaded as {existing['id']}")
            return existing
    with _UploadBar(cli, path) as bar:
        file = _send_file(cli, path, name, bar)
    cli.print_note(f"uploaded {path.name} ({_description(file)}) as {file['id']}")
    print_warnings(cli, file, path.name)
    return file


def resolve_file_id(cli: Cli, name: str, *, reuse: bool = False) -> str:
    """Return a file id unchanged; upload a path and return its id."""
    if is_file_id(name):
        return name
    file_id: str = upload_training_file(cli, Path(name), reuse=reuse)["id"]
    return file_id


def is_file_id(name: str) -> bool:
    """Return whether the name is the id of an uploaded file, not a local path."""
    return name.startswith("file-") and not Path(name).exists()


def require_training_file(path: Path) -> None:
    """Raise CliError if the path cannot be a training file, before anything is sent."""
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise CliError(
            f"{path} {problem}.",
            "Pass a JSONL file with one training example per line.",
            exit_code=ExitCode.USAGE,
            code="no_such_file",
        )
    if not path.stat().st_size:
        raise CliError(
            f"{path} is empty.",
            "Pass a JSONL file with one training example per line.",
            exit_code=ExitCode.USAGE,
            code="empty_file",
        )


def print_warnings(cli: Cli, file: Mapping[str, Any], name: str) -> None:
    """Print the first warnings of the service about the file's lines."""
    warnings = file.get("warnings") or []
    for warning in warnings[:_SHOWN_WARNINGS]:
        where = f"{name}:{warning['line']}" if warning.get("line") else name
        cli.print_note(
            f"  {where}: {formats.printable_line(warning.get('message', ''))}", style="yellow"
        )
    total = formats.object_member(file, "counts").get("warnings")
    remaining = (total if isinstance(total, int) else len(warnings)) - _SHOWN_WARNINGS
    if remaining > 0:
        cli.print_note(
            f"  and {remaining:,} more: rekindle files show {file['id']}", style="yellow"
        )


class _UploadBar:
    """Progress bar of an upload, on a terminal only."""

    def __init__(self, cli: Cli, path: Path) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._cli = cli
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=cli.err,
            transient=True,
            disable=cli.as_json or not cli.err.is_terminal,
        )
        self._task = self._progress.add_task("uploading", total=path.stat().st_size)

    def __enter__(self) -> "_UploadBar":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show_sent(self, sent: int) -> None:
        """Show the number of bytes sent."""
        self._progress.update(self._task, completed=sent)

    def show_checked(self, checked: int) -> None:
        """Show the number of bytes checked; all of them are sent."""
        self._progress.update(self._task, description="checking rows", completed=checked)

    def show_retry(self, attempt: Any) -> None:  # noqa: ANN401 - tenacity's state
        """Show why the upload is sent again."""
        self._cli.print_note(f"{attempt.outcome.exception()} Retrying the upload.")


def _send_file(cli: Cli, path: Path, name: str, bar: _UploadBar) -> Json:
    """Upload the file, in parts if it is large, and return the file object."""
    if path.stat().st_size > MAX_SINGLE_UPLOAD:
        from rekindle.cli.files.upload_parts import send_in_parts

        return send_in_parts(cli.client, path, name, bar)
    answer = cli.client.send_with_retries(
        lambda: _post_file(cli, path, name, bar.show_sent), on_retry=bar.show_retry
    )
    file: Json = answer.json()
    return file


def _post_file(
    cli: Cli, path: Path, name: str, on_sent: Callable[[int], object]
) -> "httpx.Response":
    import httpx

    from rekindle.cli.api_client import require_success

    sent = 0

    def count(count_read: int) -> None:
        nonlocal sent
        sent += count_read
        on_sent(sent)

    with path.open("rb") as stream, cli.client.translate_errors():
        answer = cli.client.http.post(
            FILES,
            data={"purpose": "fine-tune"},
            files={"file": (name, CountingReader(stream, count), "application/jsonl")},  # type: ignore[dict-item] # httpx needs read and fileno only
            timeout=httpx.Timeout(60.0, read=_CHECK_SECONDS),
        )
    return require_success(answer)


def _content_name(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return f"{path.stem}-{digest[:16]}{path.suffix}"


def _find_upload(cli: Cli, name: str) -> Json | None:
    listed = list_items(cli.client, FILES)
    return next((file for file in listed if file.get("filename") == name), None)


def _description(file: Mapping[str, Any]) -> str:
    examples = formats.object_member(file, "counts").get("examples", file.get("examples"))
    count_text = f", {formats.count(examples, 'example')}" if isinstance(examples, int) else ""
    return f"{formats.size(file.get('bytes'))}{count_text}"
