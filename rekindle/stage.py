"""Upload a base model to the base model store: `python -m rekindle.stage --storage ... DIR`.

Each model has a container with its revisions; the blob HEAD, written last, names the complete
revision. Only trainable models are staged: see `rekindle/model_check.py`.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from azure.core.exceptions import (
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient

from rekindle.model_check import CHECKS_VERSION, StagingError, check_model

MODEL_SUFFIXES = {".jinja", ".json", ".model", ".safetensors", ".txt"}
HEAD = "HEAD"


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """One file of a base model."""

    name: str
    size: int
    sha256: str


def container_name(model: str) -> str:
    """Return the container of a base model's revisions.

    >>> container_name("rekindle/tiny-llama")
    'base-bd7eaeb03bac64326633aa55'
    """
    return "base-" + hashlib.sha256(model.encode()).hexdigest()[:24]


def stage_model(
    storage: str,
    name: str,
    folder: Path,
    revision: str = "",
    check: Callable[[Path], list[str]] = check_model,
) -> str:
    """Upload missing files, name the revision in HEAD, and return it. Repeating is harmless.

    Raises StagingError for a folder that ``check`` refuses; its warnings go to standard error. An
    unchanged revision that is already staged is not checked again.
    """
    with _open_account(storage) as account:
        container = account.get_container_client(container_name(name))
        staged = _read_blob(container.get_blob_client(HEAD))
        looks_staged = staged is not None and _staged_sizes(staged) == _local_sizes(folder)
        if not looks_staged:  # checks before hashing gigabytes
            _print_warnings(check(folder))
        files = model_files(folder)
        revision = revision or revision_name(files)
        config = json.loads((folder / "config.json").read_text())
        text = _head_document(name, revision, files, config)
        if looks_staged and staged != text:
            _print_warnings(check(folder))
        _create_container(container)
        for file in files:  # also for a staged revision: restores deleted blobs
            _upload_file(container.get_blob_client(f"{revision}/{file.name}"), folder, file)
        if staged != text:
            container.upload_blob(HEAD, text, overwrite=True)
    return revision


def _open_account(storage: str) -> BlobServiceClient:
    """Return the account of a URL, signed in by `az login` or the environment, or with its key."""
    if storage.startswith("https://"):
        return BlobServiceClient(storage, DefaultAzureCredential(), retry_connect=0)
    return BlobServiceClient.from_connection_string(storage, retry_connect=0)


def model_files(folder: Path) -> list[StagedFile]:
    """Return the model's files in the folder with their hashes."""
    return [_staged_file(path) for path in _model_paths(folder)]


def _model_paths(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise StagingError(f"{folder} is not a folder; pass the folder of a transformers model")
    return sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in MODEL_SUFFIXES)


def _head_document(name: str, revision: str, files: Sequence[StagedFile], config: object) -> bytes:
    entries = [asdict(file) for file in files]
    head = {"name": name, "revision": revision, "files": entries, "config": config}
    return json.dumps(head | {"checked": CHECKS_VERSION}, sort_keys=True).encode()


def _staged_sizes(head: bytes) -> dict[str, int]:
    """Return file sizes of a HEAD that passed these checks; empty for any other."""
    try:
        document = json.loads(head)
        is_current = document.get("checked") == CHECKS_VERSION
        return {file["name"]: file["size"] for file in document["files"]} if is_current else {}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _local_sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in _model_paths(folder)}


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def revision_name(files: Sequence[StagedFile]) -> str:
    """Return a revision name that is a hash of all files."""
    lines = "".join(f"{f.name} {f.sha256}\n" for f in files)
    return "main-" + hashlib.sha256(lines.encode()).hexdigest()[:12]


def _staged_file(path: Path) -> StagedFile:
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return StagedFile(name=path.name, size=path.stat().st_size, sha256=sha256)


def _create_container(container: ContainerClient) -> None:
    try:
        container.create_container()
    except ResourceExistsError:
        return


def _upload_file(blob: BlobClient, folder: Path, file: StagedFile) -> None:
    """Upload one file unless it exists; a revision never changes its content."""
    existing = _blob_sha256(blob)
    if existing == file.sha256:
        return
    if existing is not None:
        raise StagingError(
            f"{blob.blob_name} is already staged with different content; choose another --revision"
        )
    with (folder / file.name).open("rb") as stream:
        blob.upload_blob(
            stream, overwrite=True, max_concurrency=4, metadata={"sha256": file.sha256}
        )


def _read_blob(blob: BlobClient) -> bytes | None:
    try:
        return blob.download_blob().readall()
    except ResourceNotFoundError:
        return None


def _blob_sha256(blob: BlobClient) -> str | None:
    """Return the hash in the blob's metadata; None if the blob does not exist."""
    try:
        properties: Any = blob.get_blob_properties()
    except ResourceNotFoundError:
        return None
    return str(properties.metadata.get("sha256", ""))


def main() -> int:
    """Parse arguments and stage the model."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.stage", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="folder of the model, with config.json and *.safetensors"
    )
    parser.add_argument(
        "--name",
        required=True,
        help='name of the model in the API, for example "rekindle/tiny-llama"',
    )
    parser.add_argument(
        "--revision", default="", help="name of the revision; default: a hash of the files"
    )
    parser.add_argument(
        "--storage",
        default=os.environ.get("REKINDLE_STORAGE", ""),
        help="URL or connection string of the storage account; default: $REKINDLE_STORAGE",
    )
    options = parser.parse_args()
    if not options.storage:
        parser.error(
            "no storage account: pass --storage or set $REKINDLE_STORAGE (make up prints it)"
        )
    try:
        revision = stage_model(options.storage, options.name, options.folder, options.revision)
    except ValueError as error:
        parser.error(f"--storage or $REKINDLE_STORAGE is not a URL or connection string: {error}")
    except ServiceRequestError as error:
        print(
            f"the storage account does not answer; check that the stack runs: {error}",
            file=sys.stderr,
        )
        return 1
    except StagingError as error:
        print(f"cannot stage {options.folder}: {error}", file=sys.stderr)
        return 1
    print(f"{options.name}@{revision}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
