"""Put a base model into the base model store: `python -m rekindle.stage --storage ... DIR`.

A container per model holds its revisions; the blob HEAD, written last, says which one is
staged, whole. Safetensors only: a pickle runs code on whoever loads it.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from azure.core.exceptions import (
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.storage.blob import BlobClient, BlobServiceClient, ContainerClient

PICKLES = {".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"}
WANTED = {".jinja", ".json", ".model", ".safetensors", ".txt"}
HEAD = "HEAD"


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One file of a base model."""

    name: str
    size: int
    sha256: str


class CannotStage(Exception):
    """The folder does not hold a model that we would run."""


def container_name(model: str) -> str:
    """The container of a base model's revisions.

    >>> container_name("rekindle/tiny-llama")
    'base-bd7eaeb03bac64326633aa55'
    """
    return "base-" + hashlib.sha256(model.encode()).hexdigest()[:24]


def stage(storage: str, name: str, folder: Path, revision: str = "") -> str:
    """Upload what is missing, then name it in HEAD; return the revision. Repeating is harmless."""
    files = model_files(folder)
    revision = revision or digest_of(files)
    config = _config(folder)
    listed = [asdict(file) for file in files]
    head = {"name": name, "revision": revision, "files": listed, "config": config}
    text = json.dumps(head, sort_keys=True).encode()
    with BlobServiceClient.from_connection_string(storage, retry_connect=0) as account:
        container = account.get_container_client(container_name(name))
        _ensure(container)
        for file in files:  # again, too: it mends what was deleted
            _upload(container.get_blob_client(f"{revision}/{file.name}"), folder, file)
        if _content(container.get_blob_client(HEAD)) != text:
            container.upload_blob(HEAD, text, overwrite=True)
    return revision


def model_files(folder: Path) -> list[ModelFile]:
    """What of the folder belongs to the model, or raise CannotStage."""
    if not folder.is_dir():
        raise CannotStage(f"there is no folder {folder}; name the folder of a transformers model")
    paths = sorted(p for p in folder.iterdir() if p.is_file())
    if pickles := [p.name for p in paths if p.suffix in PICKLES]:
        raise CannotStage(
            f"{pickles[0]} is a pickle, which runs code when it is loaded; "
            "save the model as safetensors and remove it"
        )
    wanted = [p for p in paths if p.suffix in WANTED]
    if not (folder / "config.json").is_file():
        raise CannotStage(f"{folder} has no config.json; name the folder of a transformers model")
    weights = [p for p in wanted if p.suffix == ".safetensors"]
    if not weights:
        raise CannotStage(f"{folder} has no *.safetensors file; save the model as safetensors")
    for path in weights:
        _check_header(path)
    return [_described(p) for p in wanted]


def digest_of(files: Sequence[ModelFile]) -> str:
    """A revision that follows from every file's content."""
    lines = "".join(f"{f.name} {f.sha256}\n" for f in files)
    return "main-" + hashlib.sha256(lines.encode()).hexdigest()[:12]


def _config(folder: Path) -> Any:  # noqa: ANN401 - whatever the model's makers wrote
    try:
        return json.loads((folder / "config.json").read_text())
    except ValueError as error:
        raise CannotStage(f"its config.json is not JSON: {error}") from error


def _described(path: Path) -> ModelFile:
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return ModelFile(name=path.name, size=path.stat().st_size, sha256=sha256)


def _check_header(path: Path) -> None:
    """Refuse what is only called safetensors: the file begins with the length of a JSON header."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        whole = 2 <= length <= path.stat().st_size - 8
        if not whole or not stream.read(1) == b"{":
            raise CannotStage(f"{path.name} is not a safetensors file, or it was cut short")


def _ensure(container: ContainerClient) -> None:
    try:
        container.create_container()
    except ResourceExistsError:
        return


def _upload(blob: BlobClient, folder: Path, file: ModelFile) -> None:
    """Upload one file unless it is there; a revision never changes its content."""
    there = _sha256_of(blob)
    if there == file.sha256:
        return
    if there is not None:
        raise CannotStage(
            f"{blob.blob_name} is staged with other content; choose another --revision"
        )
    with (folder / file.name).open("rb") as stream:
        blob.upload_blob(
            stream, overwrite=True, max_concurrency=4, metadata={"sha256": file.sha256}
        )


def _content(blob: BlobClient) -> bytes | None:
    try:
        return blob.download_blob().readall()
    except ResourceNotFoundError:
        return None


def _sha256_of(blob: BlobClient) -> str | None:
    """The content's hash as the uploader noted it; None when the blob is not there."""
    try:
        properties: Any = blob.get_blob_properties()
    except ResourceNotFoundError:
        return None
    return str(properties.metadata.get("sha256", ""))


def main() -> int:
    """Read the arguments and stage."""
    parser = argparse.ArgumentParser(prog="python -m rekindle.stage", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with config.json and *.safetensors")
    parser.add_argument("--name", required=True, help='name in the API, e.g. "rekindle/tiny-llama"')
    parser.add_argument("--revision", default="", help="default: from the files' content")
    parser.add_argument(
        "--storage",
        default=os.environ.get("REKINDLE_STORAGE", ""),
        help="connection string; default: $REKINDLE_STORAGE",
    )
    options = parser.parse_args()
    if not options.storage:
        parser.error("say where to: --storage or $REKINDLE_STORAGE (make up prints it)")
    try:
        revision = stage(options.storage, options.name, options.folder, options.revision)
    except ValueError as error:
        parser.error(f"--storage or $REKINDLE_STORAGE is no connection string: {error}")
    except ServiceRequestError as error:
        print(f"the storage does not answer; does the stack run? {error}", file=sys.stderr)
        return 1
    except CannotStage as error:
        print(f"cannot stage {options.folder}: {error}", file=sys.stderr)
        return 1
    print(f"{options.name}@{revision}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
