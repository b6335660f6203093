"""`rekindle download`: fetch the final model's files, verify them, and resume after a break.

An incomplete file is called NAME.part. It is renamed after its size and checksum are verified.
"""

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ServiceUnreachable
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Json = dict[str, Any]
PART = ".part"
TRIES = 5  # consecutive ones without new bytes
_PAUSE_SECONDS = 2.0
_PARTIAL_CONTENT = 206


def download_model(
    cli: Cli,
    job: JobArgument,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Target folder; default: the job id.")
    ] = None,
) -> None:
    """Download the final model. Rerun to resume; complete files are kept."""
    name = resolve_job_id(cli.client, job)
    listed = cli.client.get(f"{JOBS}/{name}/model")
    target = folder or Path(name)
    if (other_job := _job_of_folder(target)) not in ("", name):
        raise CliError(
            f"{target} already holds the model of job {other_job}.", "Pass another folder."
        )
    target.mkdir(parents=True, exist_ok=True)
    files: list[Json] = listed["data"]
    with _progress_bar(cli) as progress:
        files_done = [_download_file(cli, name, target, file, progress) for file in files]
    document = {
        "object": "download",
        "job": name,
        "folder": str(target),
        "files": files_done,
    }
    cli.print_result(document, lambda: [_summary(target, files_done)])


def _job_of_folder(folder: Path) -> str:
    """Return the id of the job whose model is in the folder, by its report; else ""."""
    try:
        report = json.loads((folder / "report.json").read_bytes())
        return str(report["job_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _download_file(cli: Cli, job: str, folder: Path, file: Json, progress: "Progress") -> Json:
    """Download and verify one file."""
    path = _path_in_folder(folder, file["name"])
    task = progress.add_task(formats.printable_line(file["name"]), total=file["bytes"])
    if path.is_file() and not _file_fault(path, file):
        progress.update(task, completed=file["bytes"])
        return _entry(file, path, "already present")
    part_path = path.with_name(path.name + PART)
    part_path.parent.mkdir(parents=True, exist_ok=True)
    _download_part(cli, f"{JOBS}/{job}/model/{file['name']}", part_path, file, (progress, task))
    if fault := _file_fault(part_path, file):
        part_path.unlink()
        raise CliError(f"{file['name']} arrived {fault} and was removed.", "Run the command again.")
    part_path.replace(path)
    return _entry(file, path, "downloaded")


def _download_part(
    cli: Cli, url: str, part_path: Path, file: Json, display: "tuple[Progress, TaskID]"
) -> None:
    """Append to the partial file until it is complete."""
    idle = 0
    while (before := part_path.stat().st_size if part_path.exists() else 0) < file["bytes"]:
        try:
            _append_bytes(cli, url, part_path, before, display)
        except ServiceUnreachable:
            idle = 0 if part_path.exists() and part_path.stat().st_size > before else idle + 1
            if idle >= TRIES:
                raise
            time.sleep(_PAUSE_SECONDS)
    if not part_path.exists():
        part_path.touch()  # an empty file


def _append_bytes(
    cli: Cli, url: str, part_path: Path, offset: int, display: "tuple[Progress, TaskID]"
) -> None:
    progress, task = display
    headers = {"range": f"bytes={offset}-"} if offset else {}
    with cli.client.stream_response(url, headers) as answer:
        is_partial = answer.status_code == _PARTIAL_CONTENT
        done = offset if is_partial else 0
        with part_path.open("ab" if is_partial else "wb") as stream:
            for chunk in answer.iter_raw():
                stream.write(chunk)
                done += len(chunk)
                progress.update(task, completed=done)


def _file_fault(path: Path, file: Json) -> str:
    """Return what is wrong with the file; empty if nothing is."""
    size = path.stat().st_size
    if size != file["bytes"]:
        return f"with {size} bytes instead of {file['bytes']}"
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    expected = file["sha256"]
    return f"with the checksum {actual} instead of {expected}" if actual != expected else ""


def _path_in_folder(folder: Path, name: str) -> Path:
    """Return the file's path in the folder; refuse a name that leads out of it."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or path == folder.resolve():
        raise CliError(f"The service sent the file name {name!r}, which is outside {folder}.")
    return path


def _entry(file: Json, path: Path, outcome: str) -> Json:
    return {"name": file["name"], "bytes": file["bytes"], "path": str(path), "outcome": outcome}


def _summary(target: Path, files: list[Json]) -> str:
    total = sum(file["bytes"] for file in files)
    existing = sum(file["outcome"] != "downloaded" for file in files)
    present = f", {existing} already present" if existing else ""
    count = f"{formats.count(len(files), 'file')} ({formats.size(total)}{present})"
    return f"{count} in {target}, verified"


def _progress_bar(cli: Cli) -> "Progress":
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=cli.err,
        disable=cli.as_json or not cli.err.is_terminal,
    )
